/* runtime/base/sl_parse.h - parsing of numbers, sizes and durations: one set of rules for settings,
 * options, variables and files.
 *
 * A number is decimal digits: no sign, no leading blank, no overflow. Outputs change on success
 * only. Errors are SL_ERR_INVALID, and why (may be NULL) quotes the text. */
#ifndef SL_PARSE_H
#define SL_PARSE_H

#include "runtime/base/sl_error.h"

/* Parses the leading digits of text; *rest is the text after them, also after a failure. Errors:
 * SL_ERR_INVALID (no digit), SL_ERR_LIMIT (above 2^64 - 1). */
sl_err sl_parse_digits(const char *text, uint64_t *out, const char **rest);
/* Parses exactly length digits of a longer text. */
bool sl_parse_whole(const char *text, size_t length, uint64_t *out);
/* Parses all of the text; true: the number is in low..high. */
bool sl_parse_within(const char *text, uint64_t low, uint64_t high, uint64_t *out);
/* Parses 1 to 16 hexadecimal digits of either case. */
bool sl_parse_hex(const char *text, uint64_t *out);
/* Parses a decimal fraction as strtod does, finite and without blanks. */
bool sl_parse_real(const char *text, double *out);

sl_err sl_parse_count(const char *text, uint64_t *out, struct sl_error *why);
/* Integer or decimal with optional B KB MB GB TB (10^3n) KiB MiB GiB TiB K M G T (2^10n), any case,
 * blanks before the unit; a fraction of a byte is dropped. */
sl_err sl_parse_size(const char *text, uint64_t *bytes, struct sl_error *why);
/* Integer or decimal with ns us ms s min h; 0 needs no unit. */
sl_err sl_parse_duration(const char *text, uint64_t *ns, struct sl_error *why);
/* 0..1 as decimal, in millionths. */
sl_err sl_parse_ratio(const char *text, uint64_t *millionths, struct sl_error *why);
/* true false yes no on off 1 0, any case. */
sl_err sl_parse_bool(const char *text, bool *value, struct sl_error *why);

/* Sizes in the syntax of engines' connectors: b kb mb gb tb k m g t are always powers of 1024.
 * mooncake_config.py has these rules in Python. */
sl_err sl_parse_size_1024(const char *text, uint64_t *bytes, struct sl_error *why);

#endif
