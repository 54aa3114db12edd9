/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Look-ups in the shared tables: rows, their hints, sets of values and of IPv6 prefixes. See rows.rs.
 *
 * Included once, after the loads that it uses.
 */

INLINE u64 hash_of(u64 row)
{
	u64 hash = row * FYKE_ROW_HASH;

	return (hash ^ hash >> 32) * FYKE_ROW_HASH;
}

/* True if table and key are a row. */
INLINE int is_row(struct bucket_array *all, u32 table, u64 key)
{
	u64 row = (u64)table << FYKE_ROW_TABLE_SHIFT | key;
	u64 hash = hash_of(row);
	u64 *first = &all->rows[(hash >> FYKE_ROW_FIRST_SHIFT) * FYKE_BUCKET_ROWS];
	u64 other = hash >> FYKE_ROW_SECOND_SHIFT & (FYKE_BUCKETS - 1);
	u64 *second = &all->rows[other * FYKE_BUCKET_ROWS];

#pragma unroll
	for (int i = 0; i < FYKE_BUCKET_ROWS; i++)
		if (first[i] == row)
			return 1;
#pragma unroll
	for (int i = 0; i < FYKE_BUCKET_ROWS; i++)
		if (second[i] == row)
			return 1;
	return all->more && map_lookup(&more_rows, &row);
}

NOINLINE int row_of(u32 table, u64 key)
{
	u32 zero = 0;
	struct bucket_array *all = map_lookup(&rows, &zero);

	return all ? is_row(all, table & 0xffff, key & 0xffffffffffff) : 0;
}

/* True if the table and one of two keys with equal upper parts are a row. Most often the hint excludes them. */
INLINE int is_one_row(struct bucket_array *all, u32 table, u32 begin, u32 end, u32 other)
{
	u64 hash = hash_of((u64)table << FYKE_ROW_TABLE_SHIFT | (u64)begin << 16);
	u64 hint = all->hints[hash >> FYKE_ROW_FIRST_SHIFT];
	u32 product = end * FYKE_HINT_HASH;

	if (hint >> (product >> FYKE_HINT_FIRST_SHIFT) &
	    hint >> (product >> FYKE_HINT_SECOND_SHIFT & 63) & 1)
		if (row_of(table, (u64)begin << 16 | end))
			return 1;
	product = other * FYKE_HINT_HASH;
	if (other != end && hint >> (product >> FYKE_HINT_FIRST_SHIFT) &
	    hint >> (product >> FYKE_HINT_SECOND_SHIFT & 63) & 1)
		return row_of(table, (u64)begin << 16 | other);
	return 0;
}

/* True if one of two values is a member of a set. */
NOINLINE int in_set(u32 table, u32 x, u32 y)
{
	u32 zero = 0;
	struct bucket_array *all = map_lookup(&rows, &zero);

	if (!all)
		return 0;
	table &= 0xffff;
	return is_one_row(all, table, x, 0, 0) || (x != y && is_one_row(all, table, y, 0, 0));
}

/* True if the first `bits` bits of 16 bytes are a member of a set. */
NOINLINE int member6(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i,
		     u32 at)
{
	if (!s || !i)
		return OUT_OF_BOUNDS;
	u32 bits = i->params[0], zero = 0;
	u32 words[4] = {};
	struct bucket_array *all = map_lookup(&rows, &zero);

	if (!all)
		return FALSE;
#pragma unroll
	for (u32 n = 0; n < 4; n++) {
		u32 mask = 0xffffffff;

		if (bits <= 32 * n)
			break;
		if (bits < 32 * (n + 1))
			mask <<= 32 * (n + 1) - bits;
		if (!load(skb, s, at + 4 * n, 1, mask, &words[n]))
			return OUT_OF_BOUNDS;
		words[n] &= mask;
	}
	u64 first = (u64)words[0] << 32 | words[1], second = (u64)words[2] << 32 | words[3];
	u64 table = i->params[2] & 0xffff;
	u64 hash = hash_of(hash_of(first) + second + table);
	struct fyke_address *one = &all->addresses[hash >> FYKE_ROW_FIRST_SHIFT];

#pragma unroll
	for (u32 n = 0; n < FYKE_ADDRESS_REACH; n++, one++)
		if (one->table == table && one->words[0] == words[0] && one->words[1] == words[1] &&
		    one->words[2] == words[2] && one->words[3] == words[3])
			return TRUE;
	return FALSE;
}

INLINE int set6(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i, u32 at)
{
	int first = member6(skb, s, i, at);

	if (first == OUT_OF_BOUNDS || i->params[1] == 0)
		return first;
	int second = member6(skb, s, i, at + i->params[1]);
	if (second == OUT_OF_BOUNDS)
		return second;
	return first == TRUE || second == TRUE ? TRUE : FALSE;
}

NOINLINE int set6_noinline(CONTEXT *skb, struct scratch *s,
			  const struct fyke_instruction *i, u32 at)
{
	return s && i ? set6(skb, s, i, at) : OUT_OF_BOUNDS;
}
