/* client/mooncake/daemons/flags.c - the command line and its values. */
#include "client/mooncake/daemons/flags.h"
#include "runtime/sl_arguments.h"
#include "runtime/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_BYTES   64u
#define SOURCE_BYTES 80u

struct mc_value {
    uint64_t number;
    double real;
    char *text; /* owned */
    uint32_t strength;
};
struct mc_flags {
    const struct mc_flag *table;
    uint32_t count;
    struct mc_value values[];
};

/* ---- kinds ---- */

static const char *kind_text(enum mc_kind kind)
{
    static const char *const texts[] = {
        [MC_BOOL] = "true or false",
        [MC_COUNT] = "a whole number",
        [MC_REAL] = "a number",
        [MC_TEXT] = "a text",
        [MC_SIZE] = "bytes, with kb mb gb tb if wanted",
        [MC_MILLIS] = "a duration: ms, or with ms s m h",
        [MC_SECONDS] = "a duration: seconds, or with ms s m h",
    };
    return texts[kind];
}

static bool bool_parse(const char *text, uint64_t *out)
{
    static const char *const words[] = {"false", "true", "f",   "t",  "no", "yes",
                                        "n",     "y",    "off", "on", "0",  "1"};
    for (size_t i = 0; i < SL_COUNT(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    }
    return false;
}

static bool duration_parse(const char *text, enum mc_kind kind, uint64_t *ns)
{
    static const char *const names[] = {"", "ms", "s", "m", "h"};
    const uint64_t scales[] = {kind == MC_MILLIS ? SL_NS_PER_MS : SL_NS_PER_S, SL_NS_PER_MS,
                               SL_NS_PER_S, 60 * SL_NS_PER_S, 3600 * SL_NS_PER_S};
    const char *unit = NULL;
    bool fine = sl_parse_digits(text, ns, &unit) == SL_OK;
    for (size_t i = 0; fine && i < SL_COUNT(names); i++) {
        if (strcasecmp(unit, names[i]) == 0) {
            return !__builtin_mul_overflow(*ns, scales[i], ns);
        }
    }
    return false;
}

static bool choice_is(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; *at != '\0'; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, text, length) == 0) {
            return true;
        }
        at += word;
    }
    return length == 0;
}

/* Whether text is of the flag's kind; bounds are checked by the caller. */
static bool kind_parse(const struct mc_flag *flag, const char *text, struct mc_value *out)
{
    switch (flag->kind) {
    case MC_BOOL:
        return bool_parse(text, &out->number);
    case MC_COUNT:
        return sl_parse_count(text, &out->number, NULL) == SL_OK;
    case MC_REAL:
        return sl_parse_real(text, &out->real);
    case MC_SIZE:
        return sl_parse_size_1024(text, &out->number, NULL) == SL_OK;
    case MC_MILLIS:
    case MC_SECONDS:
        return duration_parse(text, flag->kind, &out->number);
    case MC_TEXT:
        return strlen(text) <= flag->high &&
               (flag->choices == NULL || choice_is(flag->choices, text));
    }
    return false;
}

static bool in_bounds(const struct mc_flag *flag, const struct mc_value *value)
{
    switch (flag->kind) {
    case MC_REAL:
        return value->real >= (double)flag->low && value->real <= (double)flag->high;
    case MC_COUNT:
    case MC_SIZE:
        return value->number >= flag->low && value->number <= flag->high;
    case MC_MILLIS:
    case MC_SECONDS:
        return value->number >= flag->low * SL_NS_PER_MS &&
               value->number / SL_NS_PER_MS <= flag->high;
    case MC_BOOL:
    case MC_TEXT:
        return true;
    }
    return false;
}

static sl_err value_fail(const struct mc_flag *flag, const char *text, const char *source,
                         struct sl_error *why)
{
    if (flag->kind == MC_TEXT && flag->choices != NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s: --%s: '%.40s' is none of: %s", source,
                       flag->name, text, flag->choices);
    }
    if (flag->kind == MC_TEXT) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s: --%s: longer than %" PRIu64 " bytes", source,
                       flag->name, flag->high);
    }
    return sl_fail(why, SL_ERR_CONFIG, "%.80s: --%s: '%.40s' is not %s", source, flag->name, text,
                   kind_text(flag->kind));
}

static sl_err value_set(struct mc_flags *flags, uint32_t at, const char *text, const char *source,
                        uint32_t strength, struct sl_error *why)
{
    const struct mc_flag *flag = &flags->table[at];
    struct mc_value fresh = {.strength = strength};
    if (!kind_parse(flag, text, &fresh)) {
        return value_fail(flag, text, source, why);
    }
    if (!in_bounds(flag, &fresh)) {
        const char *unit = flag->kind == MC_MILLIS || flag->kind == MC_SECONDS ? " ms" : "";
        return sl_fail(why, SL_ERR_CONFIG,
                       "%.80s: --%s: '%.40s' is not in %" PRIu64 "..%" PRIu64 "%s", source,
                       flag->name, text, flag->low, flag->high, unit);
    }
    if (flags->values[at].strength > strength) {
        return SL_OK;
    }
    fresh.text = strdup(text);
    if (fresh.text == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "--%s", flag->name);
    }
    free(flags->values[at].text);
    flags->values[at] = fresh;
    return SL_OK;
}

/* ---- names ---- */

/* The name as the table writes it; false: too long to be one. */
static bool name_normal(const char *name, size_t length, char out[NAME_BYTES])
{
    if (length >= NAME_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        out[i] = (char)(name[i] == '-' ? '_' : name[i]);
    }
    out[length] = '\0';
    return true;
}

static bool name_find(const struct mc_flags *flags, const char *name, uint32_t *at)
{
    for (uint32_t i = 0; i < flags->count; i++) {
        if (strcmp(flags->table[i].name, name) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* How many letters have to be put in, taken out or changed. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[NAME_BYTES + 1];
    uint32_t length = (uint32_t)SL_MIN(strlen(b), (size_t)NAME_BYTES);
    for (uint32_t j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (uint32_t i = 0; a[i] != '\0'; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (uint32_t j = 0; j < length; j++) {
            uint32_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = SL_MIN(change, SL_MIN(row[j], row[j + 1]) + 1);
        }
    }
    return row[length];
}

static sl_err name_unknown(const struct mc_flags *flags, const char *name, const char *source,
                           struct sl_error *why)
{
    char given[NAME_BYTES];
    (void)snprintf(given, sizeof given, "%.60s", name);
    uint32_t best = 0;
    uint32_t best_distance = UINT32_MAX;
    for (uint32_t i = 0; i < flags->count; i++) {
        uint32_t far = distance(given, flags->table[i].name);
        if (far < best_distance) {
            best = i;
            best_distance = far;
        }
    }
    return sl_fail(why, SL_ERR_CONFIG, "%.80s: unknown flag '%.60s'; the nearest known one is --%s",
                   source, name, flags->table[best].name);
}

sl_err mc_flags_set(struct mc_flags *flags, const char *name, const char *text, const char *source,
                    uint32_t strength, struct sl_error *why)
{
    char normal[NAME_BYTES];
    uint32_t at = 0;
    if (!name_normal(name, strlen(name), normal) || !name_find(flags, normal, &at)) {
        return name_unknown(flags, name, source, why);
    }
    return value_set(flags, at, text, source, strength, why);
}

/* ---- the command line ---- */

#define COMMAND_LINE "command line"

static bool is_help(const char *name)
{
    return strcmp(name, "help") == 0 || strcmp(name, "h") == 0 || strcmp(name, "helpfull") == 0;
}

/* The boolean that `nox` switches off. */
static bool negated_find(const struct mc_flags *flags, const char *name, uint32_t *at)
{
    return strncmp(name, "no", 2) == 0 && name_find(flags, name + 2, at) &&
           flags->table[*at].kind == MC_BOOL;
}

/* What a word is to the walk: a flag by its number, or one of these. */
enum { OPTION_HELP = -1, OPTION_VERSION = -2 };

static enum sl_option_takes option_find(const void *table, const char *name, size_t length,
                                        int *option)
{
    const struct mc_flags *flags = table;
    char normal[NAME_BYTES];
    uint32_t at = 0;
    if (!name_normal(name, length, normal)) {
        return SL_OPTION_UNKNOWN;
    }
    bool known = name_find(flags, normal, &at);
    if (known || negated_find(flags, normal, &at)) {
        *option = (int)at;
        return !known                             ? SL_OPTION_NOTHING
               : flags->table[at].kind == MC_BOOL ? SL_OPTION_MAYBE
                                                  : SL_OPTION_VALUE;
    }
    *option = is_help(normal) ? OPTION_HELP : OPTION_VERSION;
    return *option == OPTION_HELP || strcmp(normal, "version") == 0 ? SL_OPTION_NOTHING
                                                                    : SL_OPTION_UNKNOWN;
}

static sl_err option_take(struct mc_flags *flags, const struct sl_argument *got,
                          struct sl_error *why)
{
    if (got->option < 0) {
        return sl_fail(why, SL_ERR_CANCELLED, "%s",
                       got->option == OPTION_HELP ? "help" : "version");
    }
    uint32_t at = (uint32_t)got->option;
    bool negated = strlen(flags->table[at].name) != (size_t)got->name_length;
    return value_set(flags, at,
                     got->value != NULL ? got->value
                     : negated          ? "false"
                                        : "true",
                     COMMAND_LINE, 2, why);
}

static sl_err word_refuse(const struct mc_flags *flags, enum sl_argument_kind kind,
                          const struct sl_argument *got, struct sl_error *why)
{
    char name[NAME_BYTES];
    if (kind == SL_ARGUMENT_WORD) {
        return sl_fail(why, SL_ERR_CONFIG,
                       COMMAND_LINE ": '%.80s' is no flag (a boolean is written --x, --nox or "
                                    "--x=false)",
                       got->word);
    }
    if (kind == SL_ARGUMENT_NO_VALUE) {
        return sl_fail(why, SL_ERR_CONFIG, COMMAND_LINE ": --%s needs a value: %s",
                       flags->table[got->option].name, kind_text(flags->table[got->option].kind));
    }
    bool fits = name_normal(got->name, (size_t)got->name_length, name);
    return name_unknown(flags, fits ? name : got->name, COMMAND_LINE, why);
}

sl_err mc_flags_parse(struct mc_flags *flags, int argc, char **argv, struct sl_error *why)
{
    struct sl_arguments walk = {.argc = argc,
                                .argv = argv,
                                .dash = SL_DASH_OPTION,
                                .find = option_find,
                                .table = flags,
                                .at = 1};
    struct sl_argument got;
    enum sl_argument_kind kind;
    while ((kind = sl_arguments_next(&walk, &got)) != SL_ARGUMENT_END) {
        sl_err err = kind == SL_ARGUMENT_OPTION ? option_take(flags, &got, why)
                                                : word_refuse(flags, kind, &got, why);
        if (err != SL_OK) {
            return err;
        }
    }
    uint32_t at = 0;
    if (name_find(flags, "config_path", &at) && flags->values[at].text[0] != '\0') {
        return mc_flags_load(flags, flags->values[at].text, why);
    }
    return SL_OK;
}

/* ---- values ---- */

sl_err mc_flags_create(const struct mc_flag *table, uint32_t count, struct mc_flags **out,
                       struct sl_error *why)
{
    struct mc_flags *flags = calloc(1, sizeof *flags + count * sizeof flags->values[0]);
    if (flags == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u flags", count);
    }
    flags->table = table;
    flags->count = count;
    for (uint32_t i = 0; i < count; i++) {
        sl_err err = value_set(flags, i, table[i].standard, "default", 0, why);
        SL_ASSERT(err == SL_OK || err == SL_ERR_NO_MEMORY);
        if (err != SL_OK) {
            mc_flags_destroy(&flags);
            return err;
        }
    }
    *out = flags;
    return SL_OK;
}

void mc_flags_destroy(struct mc_flags **flags)
{
    if (*flags == NULL) {
        return;
    }
    for (uint32_t i = 0; i < (*flags)->count; i++) {
        free((*flags)->values[i].text);
    }
    free(*flags);
    *flags = NULL;
}

bool mc_flags_bool(const struct mc_flags *flags, uint32_t flag)
{
    SL_ASSERT(flags->table[flag].kind == MC_BOOL);
    return flags->values[flag].number != 0;
}

uint64_t mc_flags_u64(const struct mc_flags *flags, uint32_t flag)
{
    SL_ASSERT(flags->table[flag].kind != MC_TEXT);
    SL_ASSERT(flags->table[flag].kind != MC_REAL);
    return flags->values[flag].number;
}

double mc_flags_real(const struct mc_flags *flags, uint32_t flag)
{
    SL_ASSERT(flags->table[flag].kind == MC_REAL);
    return flags->values[flag].real;
}

const char *mc_flags_text(const struct mc_flags *flags, uint32_t flag)
{
    return flags->values[flag].text;
}

bool mc_flags_given(const struct mc_flags *flags, uint32_t flag)
{
    return flags->values[flag].strength > 0;
}

static bool is_standard(const struct mc_flags *flags, uint32_t at)
{
    const struct mc_flag *flag = &flags->table[at];
    struct mc_value standard = {0};
    (void)kind_parse(flag, flag->standard, &standard);
    switch (flag->kind) {
    case MC_TEXT:
        return strcmp(flag->standard, flags->values[at].text) == 0;
    case MC_REAL:
        return standard.real <= flags->values[at].real && standard.real >= flags->values[at].real;
    default:
        return standard.number == flags->values[at].number;
    }
}

void mc_flags_ignored(const struct mc_flags *flags,
                      void (*each)(void *context, const struct mc_flag *flag, const char *value),
                      void *context)
{
    for (uint32_t i = 0; i < flags->count; i++) {
        if (flags->table[i].use == MC_IGNORED && !is_standard(flags, i)) {
            each(context, &flags->table[i], flags->values[i].text);
        }
    }
}

void mc_flags_print_help(const struct mc_flags *flags, FILE *out)
{
    for (uint32_t i = 0; i < flags->count; i++) {
        const struct mc_flag *flag = &flags->table[i];
        (void)fprintf(out, "  --%s=%s\n      ", flag->name,
                      flag->standard[0] == '\0' ? "\"\"" : flag->standard);
        if (flag->choices != NULL) {
            (void)fprintf(out, "one of: %s", flag->choices);
        } else {
            (void)fprintf(out, "%s", kind_text(flag->kind));
        }
        if (flag->kind == MC_COUNT || flag->kind == MC_REAL) {
            (void)fprintf(out, ", %" PRIu64 "..%" PRIu64, flag->low, flag->high);
        }
        (void)fprintf(out, ". %s%s\n",
                      flag->use == MC_USED ? "" : "Accepted, means nothing here: ", flag->help);
    }
}
