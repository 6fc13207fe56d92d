/* client/mooncake/daemons/flags.h - flags of mooncake_master and mooncake_client: one table a
 * program, two sources, strict types.
 *
 * Names are written -x or --x, with dashes or underscores. Values stand behind `=` or in the next
 * word; a boolean stands alone (--x, --nox) or behind `=`. `--` and words that are no flags are
 * errors: nothing here takes any. What stands later wins; the command line wins over the file that
 * the flag config_path names (JSON or YAML, a flat object with the same names). */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_FLAGS_H
#define SL_CLIENT_MOONCAKE_DAEMONS_FLAGS_H

#include "runtime/sl_error.h"

#include <stdio.h>

enum mc_kind {
    MC_BOOL,    /* true t yes y on 1, false f no n off 0, any case */
    MC_COUNT,   /* whole number */
    MC_REAL,    /* decimal number; bounds are whole */
    MC_TEXT,    /* high: longest length; choices */
    MC_SIZE,    /* bytes: number with optional unit b kb mb gb tb or k m g t, any case, blanks
                   before it, powers of 1024 */
    MC_MILLIS,  /* duration: whole number of ms, or with a unit: ms s m h */
    MC_SECONDS, /* the same, a number alone are seconds */
};
enum mc_use {
    MC_USED,
    MC_IGNORED, /* accepted; means nothing here, as its help says why */
};

struct mc_flag {
    const char *name; /* with underscores */
    enum mc_kind kind;
    const char *standard;
    uint64_t low, high;  /* in ms for durations */
    const char *choices; /* texts: "a b c"; NULL: any */
    enum mc_use use;
    const char *help;
};

struct mc_flags; /* opaque; read-only after parsing, then any thread */
/* Gives all defaults. Borrows the table for good; its defaults must fit their kinds (asserted).
 * Errors: SL_ERR_NO_MEMORY. */
sl_err mc_flags_create(const struct mc_flag *table, uint32_t count, struct mc_flags **out,
                       struct sl_error *why);
void mc_flags_destroy(struct mc_flags **flags);

/* Takes the command line (argv[0] is skipped), then the file of config_path, where the table has
 * that flag. Errors: SL_ERR_CONFIG (unknown: names it and the nearest known one; wrong: names
 * source and value), SL_ERR_UNSUPPORTED (YAML, and built without libyaml), SL_ERR_CANCELLED (help
 * or version was asked for: the word in why->text), those of reading the file. */
sl_err mc_flags_parse(struct mc_flags *flags, int argc, char **argv, struct sl_error *why);
/* Sets one from text, unless a stronger source has: `strength` 1 is a file, 2 the command line. */
sl_err mc_flags_set(struct mc_flags *flags, const char *name, const char *text, const char *source,
                    uint32_t strength, struct sl_error *why);

/* flag: its place in the table. */
bool mc_flags_bool(const struct mc_flags *flags, uint32_t flag);
uint64_t mc_flags_u64(const struct mc_flags *flags, uint32_t flag); /* durations in ns */
double mc_flags_real(const struct mc_flags *flags, uint32_t flag);
const char *mc_flags_text(const struct mc_flags *flags,
                          uint32_t flag); /* of any, as it was given */
bool mc_flags_given(const struct mc_flags *flags, uint32_t flag);
/* Calls each() for the flags that mean nothing here and have another value than their default. */
void mc_flags_ignored(const struct mc_flags *flags,
                      void (*each)(void *context, const struct mc_flag *flag, const char *value),
                      void *context);
/* The table for people: kinds, ranges, defaults, and what becomes of each. */
void mc_flags_print_help(const struct mc_flags *flags, FILE *out);

/* ---- flags_file.c ---- */
/* Reads a flat object from a file that ends in .json, .yaml or .yml, at most 1 MiB, and sets each
 * member with strength 1. Errors as mc_flags_parse. */
sl_err mc_flags_load(struct mc_flags *flags, const char *path, struct sl_error *why);

#endif
