/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The decision about a frame, which the program that selects its socket hands to the program of the socket.
 *
 * Included once, before the scratch memory.
 */

struct decision {
	u32 made;
	u32 verdict;
	/* The counter to add to, if it is one. */
	u32 counter;
	/* The socket plus one; 0: the passes do not tell. */
	u32 class;
};
