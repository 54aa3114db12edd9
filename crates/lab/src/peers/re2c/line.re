/* A header line whose name and value are wanted, for re2c; `NAME` and `VALUE` become tags or nothing. Answers are where
 * name and value begin, added up, and 1; 0 without a match. No byte at or behind the limit is read. */
#include <stddef.h>
#include <stdint.h>
typedef unsigned char u8;
typedef struct { const u8 *data; uint32_t len, wire_len; } frame;
static uint64_t one(const u8 *cursor, const u8 *limit) {
    const u8 *start = cursor, *marker = cursor, *n = cursor, *v = cursor;
    /*!stags:re2c format = 'const u8 *@@;'; */
    for (;;) {
    /*!re2c
        re2c:eof = 0;
        re2c:flags:tags = 1;
        re2c:api = custom;
        re2c:api:style = free-form;
        re2c:define:YYCTYPE = u8;
        re2c:define:YYPEEK = "(cursor < limit ? *cursor : 0)";
        re2c:define:YYSKIP = "++cursor;";
        re2c:define:YYBACKUP = "marker = cursor;";
        re2c:define:YYRESTORE = "cursor = marker;";
        re2c:define:YYLESSTHAN = "cursor >= limit";
        re2c:define:YYSTAGP = "@@ = cursor;";
        re2c:define:YYSTAGN = "@@ = 0;";
        re2c:define:YYSHIFTSTAG  = "@@{tag} += @@{shift};";
        re2c:yyfill:enable = 0;
        "\r\n" NAME [A-Za-z\-]{1,40} ": " VALUE [^\r]+ "\r\n" {
            return (uint64_t)(n - start) + (uint64_t)(v - start) + 1;
        }
        * { continue; }
        $ { return 0; }
    */
    }
}
void judge(const frame *f, size_t count, uint64_t *out) {
    for (size_t i = 0; i < count; i++) out[i] = one(f[i].data, f[i].data + f[i].len);
}
