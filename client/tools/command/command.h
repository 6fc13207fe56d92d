/* client/tools/command/command.h - functions that the commands of sluicectl share: arguments,
 * output, scripts, metrics pages. */
#ifndef SL_CLIENT_COMMAND_COMMAND_H
#define SL_CLIENT_COMMAND_COMMAND_H

#include "client/include/sluice.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_metrics.h"

#include <jansson.h>
#include <stdio.h>

enum ctl_exit { CTL_SUCCESS = 0, CTL_NO = 1, CTL_WRONG_USE = 2, CTL_UNREACHABLE = 3 };

#define CTL_SETTINGS_MAX 64u
#define CTL_PAGES_MAX    SL_METRICS_VIEWS_MAX

/* The end of a command's help. */
/* clang-format off */
#define CTL_HELP_COMMON \
    "\n" \
    "  --json            answer as JSON\n" \
    "  --instance NAME   name of the node (default: $SLUICE_INSTANCE or \"default\")\n" \
    "  --config FILE, --runtime-dir DIR, --shm-dir DIR and all other settings: sluicectl config --help\n" \
    "Exit codes: 0 success, 1 no (not found, failed), 2 wrong use, 3 node not reachable."
/* clang-format on */

struct ctl {
    const struct ctl_command *command;
    struct sl_config *config; /* all sources, the command line included */
    struct sl_paths paths;
    const char *config_file;
    const char *settings[CTL_SETTINGS_MAX + 1]; /* "name=value" from the command line */
    char *setting_texts[CTL_SETTINGS_MAX];      /* owned */
    uint32_t setting_count;
    bool json;
    char asks_as[33]; /* the node's user, which root became; "": none */
    char **words;     /* arguments that are not options */
    int word_count;
};

/* An option of a command: a flag, a text, a flag with an optional text, or one of the parsed kinds
 * count, size and duration. */
struct ctl_option {
    const char *name; /* without the dashes */
    bool *flag;
    const char **text;  /* with a flag: the text after `=`, or NULL */
    uint64_t *count;    /* decimal */
    uint64_t *size;     /* as sizes in the settings */
    uint64_t *duration; /* as durations in the settings */
};

/* Sends a node a request. Gives *answer, which is printed on success. */
typedef sl_err (*ctl_query_fn)(const struct ctl *ctl, struct sl_client *client, const void *context,
                               json_t **answer, struct sl_error *why);
struct ctl_command {
    const char *name;
    const char *summary;
    const char *help; /* usage, options, examples */
    int (*run)(struct ctl *ctl, int argc, char **argv);
    ctl_query_fn ask; /* instead of run: no options of its own, no context */
    bool registers;   /* it registers memory, which swappers open by its descriptors in /proc */
    int words_min, words_max;
    const char *words; /* error text for another number of words; NULL: it takes none */
};

/* ---- arguments.c ---- */
/* Parses options and settings; words and options may be mixed. `--json` is a flag unless the
 * command has an option of that name. False: the command ends with *exit_code (--help was printed,
 * or the arguments are wrong). */
bool ctl_parse(struct ctl *ctl, int argc, char **argv, const struct ctl_option *options,
               uint32_t option_count, int *exit_code);
/* Opens the node that the arguments select. */
sl_err ctl_open(const struct ctl *ctl, bool read_only, struct sl_client **out,
                struct sl_error *why);

/* Opens the node, calls ask, and prints the answer (ctl_answer). Gives the exit code. */
int ctl_query(const struct ctl *ctl, ctl_query_fn ask, const void *context);

/* A word as a key; borrowed. */
struct sl_object_key ctl_key(const char *word);
/* All words as keys (borrowed), and an array for their codes. The caller frees both with free(),
 * also on failure. Errors: SL_ERR_NO_MEMORY. */
sl_err ctl_word_keys(const struct ctl *ctl, struct sl_object_key **keys, sl_err **codes,
                     struct sl_error *why);

/* ---- output.c ---- */
/* Prints an error about the arguments. Gives CTL_WRONG_USE. */
int ctl_usage_error(const struct ctl *ctl, const char *format, ...) SL_PRINTF(2, 3);
/* Prints the error of a failed call, with --json also as an object. Gives its exit code. */
int ctl_failed(const struct ctl *ctl, const struct sl_error *why);
/* If the selected node does not run: prints which nodes run, or that it belongs to another user. */
void ctl_no_node_print(const struct ctl *ctl, FILE *out);
/* Prints and frees. */
void ctl_print_json(json_t *object);
/* Any bytes as text: as they are if they are UTF-8, else "hex:...". New reference. */
json_t *ctl_json_bytes(const char *bytes, size_t length);
json_t *ctl_json_text(const char *text);
json_t *ctl_json_u64(uint64_t value);
/* Writes the first character of a text of left bytes for people. Control characters, invalid bytes
 * and backslashes are escaped, as "\x1b" (runtime/base/sl_text.h). Gives the character's length in
 * text, in bytes. */
#define CTL_CHARACTER_TEXT 17u
size_t ctl_character_text(const char *text, size_t left, char out[CTL_CHARACTER_TEXT]);
/* Writes bytes in the same form. */
void ctl_print_bytes(FILE *out, const char *bytes, size_t length);
/* Parses the value of --progress; auto shows progress if standard error is a terminal. Gives
 * CTL_SUCCESS or CTL_WRONG_USE. */
int ctl_progress(const struct ctl *ctl, const char *value, bool *shown);
/* "\r[###...] 3/6  " on standard error. */
void ctl_progress_bar(uint64_t done, uint64_t total);

/* ---- interrupt.c ---- */
/* From this call on SIGINT and SIGTERM only set a flag, which ctl_interrupted() reads. */
void ctl_interruptible(void);
bool ctl_interrupted(void);

/* ---- script.c: files of Python in PREFIX/share/sluice ---- */
#define CTL_WORDS_MAX (CTL_SETTINGS_MAX + 16u)
/* Appends the selection of the node to words, of which there are count (14 at most): the settings
 * file or "", and each setting of the command line. plain.py's sluicectl() reads them. */
void ctl_script_settings(const struct ctl *ctl, const char *words[], uint32_t count);
/* Replaces this process by python3 with that file and these words, which end with NULL. */
__attribute__((noreturn)) void ctl_script_exec(const char *name, const char *const words[]);
/* Runs python3 with that file and the facts (taken) on its standard input. Gives its exit code. */
int ctl_script_print(const char *name, const char *const words[], json_t *facts);

/* Prints the answer (taken) as JSON, or as text by text.py. Gives the exit code. */
int ctl_answer(const struct ctl *ctl, json_t *answer);

/* ---- supervision.c ---- */
/* {state, pid, since_ms}: "none" (no actor lives, or systemd has a unit for each), "supervised",
 * "stopped" (by SIGSTOP) or "unsupervised" (since 1970; 0: not known). New reference. */
json_t *ctl_supervision(const struct ctl *ctl);

/* ---- pages.c ---- */
/* Calls each() for every metrics page of the node until it returns false. Gives the number of
 * pages, at most CTL_PAGES_MAX. */
uint32_t ctl_pages(const struct ctl *ctl, bool (*each)(void *context, struct sl_metrics_view *view),
                   void *context);
/* Whether the registrar whose metrics page is in this directory lives. */
bool ctl_registrar_lives(const char *shm_dir);
/* Its pid; 0: it does not live. */
uint32_t ctl_registrar_pid(const char *shm_dir);
/* The error for a node without metrics pages: no node, or one of another build. Never SL_OK. */
sl_err ctl_no_pages(const struct ctl *ctl, struct sl_error *why);
/* The value of the metric of that name; 0: the page has none. */
uint64_t ctl_page_metric(const struct sl_metrics_view *view, const char *wanted);

#endif
