/* runtime/base/sl_parse.c - parsing of numbers, sizes, durations, ratios and booleans. */
#include "runtime/base/sl_parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- digits ---- */

/* Appends one digit; false: above 2^64 - 1. */
static bool digit_take(uint64_t *value, char digit)
{
    return !__builtin_mul_overflow(*value, 10, value) &&
           !__builtin_add_overflow(*value, (uint64_t)(digit - '0'), value);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

sl_err sl_parse_digits(const char *text, uint64_t *out, const char **rest)
{
    uint64_t value = 0;
    bool fits = true;
    const char *at = text;
    for (; is_digit(*at); at++) {
        fits = fits && digit_take(&value, *at);
    }
    *rest = at;
    if (at == text || !fits) {
        return at == text ? SL_ERR_INVALID : SL_ERR_LIMIT;
    }
    *out = value;
    return SL_OK;
}

bool sl_parse_whole(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]) || !digit_take(&value, text[i])) {
            return false;
        }
    }
    if (length > 0) {
        *out = value;
    }
    return length > 0;
}

bool sl_parse_within(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    uint64_t value = 0;
    if (!sl_parse_whole(text, strlen(text), &value) || value < low || value > high) {
        return false;
    }
    *out = value;
    return true;
}

bool sl_parse_hex(const char *text, uint64_t *out)
{
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    if (digits == 0 || digits > 16 || text[digits] != '\0') {
        return false;
    }
    *out = strtoull(text, NULL, 16);
    return true;
}

bool sl_parse_real(const char *text, double *out)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value) ||
        isspace((unsigned char)text[0])) {
        return false;
    }
    *out = value;
    return true;
}

/* sl_parse_digits with an error text. */
static sl_err number_take(const char *text, uint64_t *out, const char **rest, struct sl_error *why)
{
    sl_err err = sl_parse_digits(text, out, rest);
    return err == SL_OK ? SL_OK
                        : sl_fail(why, SL_ERR_INVALID, "'%.64s' is %s", text,
                                  err == SL_ERR_LIMIT ? "too large" : "no number");
}

sl_err sl_parse_count(const char *text, uint64_t *out, struct sl_error *why)
{
    const char *rest = NULL;
    uint64_t value = 0;
    sl_err err = number_take(text, &value, &rest, why);
    if (err == SL_OK && *rest != '\0') {
        return sl_fail(why, SL_ERR_INVALID, "'%.64s' is no whole number", text);
    }
    if (err == SL_OK) {
        *out = value;
    }
    return err;
}

/* ---- decimals with a unit ---- */

struct decimal {
    uint64_t whole;
    uint64_t fraction; /* in parts of FRACTION_ONE; digits after the 18th are dropped */
};
#define FRACTION_ONE UINT64_C(1000000000000000000)

static sl_err decimal_take(const char *text, struct decimal *out, const char **rest,
                           struct sl_error *why)
{
    sl_err err = number_take(text, &out->whole, rest, why);
    out->fraction = 0;
    if (err != SL_OK || **rest != '.') {
        return err;
    }
    (*rest)++;
    if (!is_digit(**rest)) {
        return sl_fail(why, SL_ERR_INVALID, "'%.64s' is no number", text);
    }
    for (uint64_t place = FRACTION_ONE / 10; is_digit(**rest); place /= 10, (*rest)++) {
        out->fraction += place * (uint64_t)(**rest - '0');
    }
    return SL_OK;
}

struct unit {
    const char *name;
    uint64_t factor;
};

struct units {
    const struct unit *table;
    size_t count;
    int (*compare)(const char *, const char *);
    const char *wanted; /* text for people after the name of an unknown unit */
};

static const struct unit size_units[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1000},
    {"mb", 1000000},
    {"gb", 1000000000},
    {"tb", 1000000000000},
    {"k", SL_KIB},
    {"m", SL_MIB},
    {"g", SL_GIB},
    {"t", SL_GIB << 10},
    {"kib", SL_KIB},
    {"mib", SL_MIB},
    {"gib", SL_GIB},
    {"tib", SL_GIB << 10},
};

static const struct unit engine_units[] = {
    {"", 1},        {"b", 1},      {"k", SL_KIB},  {"kb", SL_KIB},      {"m", SL_MIB},
    {"mb", SL_MIB}, {"g", SL_GIB}, {"gb", SL_GIB}, {"t", SL_GIB << 10}, {"tb", SL_GIB << 10},
};

static const struct unit duration_units[] = {
    {"ns", 1},          {"us", SL_NS_PER_US},      {"ms", SL_NS_PER_MS},
    {"s", SL_NS_PER_S}, {"min", 60 * SL_NS_PER_S}, {"h", 3600 * SL_NS_PER_S},
};

#define BLANKS " \t\n\v\f\r"

/* Parses a decimal with one of the units and blanks around them; fractions of the smallest unit are
 * dropped. */
static sl_err measure_parse(const char *text, const struct units *units, uint64_t *out,
                            struct sl_error *why)
{
    const char *rest = NULL;
    struct decimal value;
    uint64_t factor = 0;
    char name[64] = "";
    sl_err err = decimal_take(text + strspn(text, BLANKS), &value, &rest, why);
    if (err != SL_OK) {
        return err;
    }
    rest += strspn(rest, BLANKS);
    size_t length = strlen(rest);
    while (length > 0 && strchr(BLANKS, rest[length - 1]) != NULL) {
        length--;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)SL_MIN(length, sizeof(name) - 1), rest);
    for (size_t i = 0; i < units->count && factor == 0; i++) {
        factor = units->compare(name, units->table[i].name) == 0 ? units->table[i].factor : 0;
    }
    if (factor == 0) {
        return sl_fail(why, SL_ERR_INVALID, "'%.64s': unknown unit '%.64s'; %s", text, name,
                       units->wanted);
    }
    unsigned __int128 scaled = (unsigned __int128)value.whole * factor +
                               (unsigned __int128)value.fraction * factor / FRACTION_ONE;
    if (scaled > UINT64_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "'%.64s' is too large", text);
    }
    *out = (uint64_t)scaled;
    return SL_OK;
}

sl_err sl_parse_size(const char *text, uint64_t *bytes, struct sl_error *why)
{
    static const struct units units = {size_units, SL_COUNT(size_units), strcasecmp,
                                       "B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB"};
    return measure_parse(text, &units, bytes, why);
}

sl_err sl_parse_size_1024(const char *text, uint64_t *bytes, struct sl_error *why)
{
    static const struct units units = {engine_units, SL_COUNT(engine_units), strcasecmp,
                                       "b, kb, mb, gb, tb (powers of 1024)"};
    return measure_parse(text, &units, bytes, why);
}

sl_err sl_parse_duration(const char *text, uint64_t *ns, struct sl_error *why)
{
    static const struct units units = {duration_units, SL_COUNT(duration_units), strcmp,
                                       "a duration needs a unit: ns, us, ms, s, min or h"};
    const char *rest = NULL;
    struct decimal value;
    if (decimal_take(text, &value, &rest, NULL) == SL_OK && *rest == '\0' && value.whole == 0 &&
        value.fraction == 0) {
        *ns = 0;
        return SL_OK;
    }
    return measure_parse(text, &units, ns, why);
}

sl_err sl_parse_ratio(const char *text, uint64_t *millionths, struct sl_error *why)
{
    const char *rest = NULL;
    struct decimal value = {0};
    sl_err err = decimal_take(text, &value, &rest, why);
    if (err != SL_OK) {
        return err;
    }
    if (*rest != '\0' || value.whole > 1 || (value.whole == 1 && value.fraction > 0)) {
        return sl_fail(why, SL_ERR_INVALID, "'%.64s' is no ratio from 0 to 1", text);
    }
    *millionths = value.whole * 1000000 + value.fraction / (FRACTION_ONE / 1000000);
    return SL_OK;
}

/* ---- booleans ---- */

sl_err sl_parse_bool(const char *text, bool *value, struct sl_error *why)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < SL_COUNT(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 != 0;
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_INVALID,
                   "'%.64s' is not a boolean: true, false, yes, no, on, off, 1 or 0", text);
}
