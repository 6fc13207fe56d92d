/* runtime/base/sl_arguments.h - one walk over a command line, for every program.
 *
 * Options are --name VALUE or --name=VALUE, dashes and underscores of a name are the same, and a
 * name is never shortened: what --disk-s means must not change with a new setting. The caller has
 * the table of its options, the words for its errors, and decides whether words may stand between
 * options. */
#ifndef SL_ARGUMENTS_H
#define SL_ARGUMENTS_H

#include "runtime/base/sl_base.h"

enum sl_option_takes {
    SL_OPTION_UNKNOWN,
    SL_OPTION_NOTHING,
    SL_OPTION_VALUE, /* behind `=` or the next word */
    SL_OPTION_MAYBE, /* behind `=` or none */
};
enum sl_dash {
    SL_DASH_WORD,    /* -x is a word like any other; `--` ends the options */
    SL_DASH_UNKNOWN, /* -x is an unknown option; `--` ends the options */
    SL_DASH_OPTION,  /* -x is --x; `--` is a word */
};

struct sl_arguments {
    int argc;
    char **argv;
    enum sl_dash dash;
    /* Looks up a name of length bytes: *option is for the caller. */
    enum sl_option_takes (*find)(const void *table, const char *name, size_t length, int *option);
    const void *table;
    int at;          /* what comes next; at first 1 */
    bool words_only; /* behind `--` */
};

enum sl_argument_kind {
    SL_ARGUMENT_END,
    SL_ARGUMENT_WORD,
    SL_ARGUMENT_OPTION,
    SL_ARGUMENT_UNKNOWN,
    SL_ARGUMENT_NO_VALUE,
    SL_ARGUMENT_UNWANTED, /* a value of an option that takes none */
};
struct sl_argument {
    const char *word;  /* as it stands there; all borrowed from argv */
    const char *name;  /* of an option, without dashes; ends where its length says */
    int name_length;   /* bytes */
    const char *value; /* NULL: none */
    int option;        /* from find */
};
/* Gives what comes next. Only the fields of its kind are set. */
enum sl_argument_kind sl_arguments_next(struct sl_arguments *walk, struct sl_argument *out);

/* Whether name, length bytes, means the option own. */
bool sl_option_is(const char *own, const char *name, size_t length);

#endif
