/* runtime/base/sl_arguments.h - a command-line parser shared by all programs.
 *
 * Options are --name VALUE or --name=VALUE; dashes and underscores in a name are the same. Names
 * cannot be shortened: the meaning of --disk-s must not change with a new setting. The caller has
 * the table of options and the error texts, and decides whether words may stand between options. */
#ifndef SL_ARGUMENTS_H
#define SL_ARGUMENTS_H

#include "runtime/base/sl_base.h"

enum sl_option_takes {
    SL_OPTION_UNKNOWN,
    SL_OPTION_NOTHING,
    SL_OPTION_VALUE, /* after `=`, or the next word */
    SL_OPTION_MAYBE, /* after `=`, or none */
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
    /* Looks up a name of length bytes. *option: any number of the caller's. */
    enum sl_option_takes (*find)(const void *table, const char *name, size_t length, int *option);
    const void *table;
    int at;          /* index of the next argument; at first 1 */
    bool words_only; /* after `--` */
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
    const char *word;  /* the whole argument; all pointers are borrowed from argv */
    const char *name;  /* name of the option without dashes; not zero-terminated */
    int name_length;   /* bytes */
    const char *value; /* NULL: none */
    int option;        /* from find */
};
/* Reads the next argument. Sets only the fields of the kind that it returns. */
enum sl_argument_kind sl_arguments_next(struct sl_arguments *walk, struct sl_argument *out);

/* Whether name, of length bytes, names the option `own`; dashes equal underscores. */
bool sl_option_is(const char *own, const char *name, size_t length);

#endif
