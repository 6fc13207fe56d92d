/* client/tools/command/command.h - what the commands of sluicectl share. */
#ifndef SL_CLIENT_COMMAND_COMMAND_H
#define SL_CLIENT_COMMAND_COMMAND_H

#include "client/include/sluice.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_metrics.h"

#include <jansson.h>
#include <stdio.h>

enum ctl_exit { CTL_FINE = 0, CTL_NO = 1, CTL_WRONG_USE = 2, CTL_UNREACHABLE = 3 };

#define CTL_SETTINGS_MAX 64u
#define CTL_PAGES_MAX    SL_METRICS_VIEWS_MAX

/* Where the help of a command ends. */
/* clang-format off */
#define CTL_HELP_COMMON \
    "\n" \
    "  --json            answer as JSON\n" \
    "  --instance NAME   the node meant (default: $SLUICE_INSTANCE or \"default\")\n" \
    "  --config FILE, --runtime-dir DIR, --shm-dir DIR and all other settings: sluicectl config --help\n" \
    "Exit codes: 0 fine, 1 no (not found, failed), 2 wrong use, 3 node not reachable."
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
    char asks_as[33]; /* user that root became, as the node is that user's; "": none */
    char **words;     /* arguments that are no options */
    int word_count;
};

/* An option of a command: with value (text != NULL) or without (flag). Parsed: at most one of the
 * others is set. */
struct ctl_option {
    const char *name; /* without the dashes */
    bool *flag;
    const char **text;  /* with a flag: what follows `=`, or NULL */
    uint64_t *count;    /* decimal */
    uint64_t *size;     /* as sizes in the settings */
    uint64_t *duration; /* as durations in the settings */
};

/* Asks a node. What it gives as answer is shown when it succeeds. */
typedef sl_err (*ctl_ask_fn)(const struct ctl *ctl, struct sl_client *client, const void *context,
                             json_t **answer, struct sl_error *why);
struct ctl_command {
    const char *name;
    const char *summary;
    const char *help; /* usage, options, examples */
    int (*run)(struct ctl *ctl, int argc, char **argv);
    ctl_ask_fn ask; /* instead of run, without options of its own and a context */
    bool registers; /* memory, which swappers open by this process's descriptors in /proc */
    int words_min, words_max;
    const char *words; /* what they are, where others are wrong use; NULL: the command takes none */
};

/* ---- arguments.c ---- */
/* Parses options and settings; words and options may be mixed. `--json` is taken as a flag unless
 * the command has an option of that name. False: *exit_code says how to end (--help was printed, or
 * the use was wrong). */
bool ctl_parse(struct ctl *ctl, int argc, char **argv, const struct ctl_option *options,
               uint32_t option_count, int *exit_code);
/* Opens the node that was parsed. */
sl_err ctl_open(const struct ctl *ctl, bool read_only, struct sl_client **out,
                struct sl_error *why);

/* Opens the node, asks it, and shows the answer (ctl_answer). Gives the exit code. */
int ctl_ask(const struct ctl *ctl, ctl_ask_fn ask, const void *context);

/* A word as a key; borrowed. */
struct sl_object_key ctl_key(const char *word);
/* All words as keys (borrowed), and room for a code each. Gives both to free(), also on failure.
 * Errors: SL_ERR_NO_MEMORY. */
sl_err ctl_word_keys(const struct ctl *ctl, struct sl_object_key **keys, sl_err **codes,
                     struct sl_error *why);

/* ---- output.c ---- */
/* Wrong use: prints and gives CTL_WRONG_USE. */
int ctl_wrong(const struct ctl *ctl, const char *format, ...) SL_PRINTF(2, 3);
/* A failed call: prints, with --json as an object too, and gives the exit code of its error. */
int ctl_failed(const struct ctl *ctl, const struct sl_error *why);
/* Says what else there is where the node that was meant does not run: other nodes, or that it is
 * another user's. */
void ctl_no_node_say(const struct ctl *ctl, FILE *out);
/* Prints and frees. */
void ctl_print_json(json_t *object);
/* Text of any bytes: as UTF-8, or "hex:..." when they are none. New reference. */
json_t *ctl_json_bytes(const char *bytes, size_t length);
json_t *ctl_json_text(const char *text);
json_t *ctl_json_u64(uint64_t value);
/* The first character of a text of left bytes, for people: the bytes of one that a terminal must
 * not have are escaped, as "\x1b" (runtime/base/sl_text.h), as is a backslash. Gives the bytes it
 * has in text. */
#define CTL_CHARACTER_TEXT 17u
size_t ctl_character_text(const char *text, size_t left, char out[CTL_CHARACTER_TEXT]);
/* Writes bytes likewise. */
void ctl_print_bytes(FILE *out, const char *bytes, size_t length);
/* The value of --progress: auto shows it where standard error is a terminal. Gives CTL_FINE or
 * CTL_WRONG_USE. */
int ctl_progress(const struct ctl *ctl, const char *value, bool *shown);
/* "\r[###...] 3/6  " on standard error. */
void ctl_progress_bar(uint64_t done, uint64_t total);

/* ---- interrupt.c ---- */
/* SIGINT and SIGTERM end no process any more, but what asks whether one came. */
void ctl_interruptible(void);
bool ctl_interrupted(void);

/* ---- script.c: files of Python in PREFIX/share/sluice ---- */
#define CTL_WORDS_MAX (CTL_SETTINGS_MAX + 16u)
/* Adds to count words, 14 at most, what says which node is meant: the settings file, or "", and
 * each setting of the command line. plain.py's sluicectl() makes a command line of it. */
void ctl_script_settings(const struct ctl *ctl, const char *words[], uint32_t count);
/* Becomes python3 with that file and these words, ended by NULL. */
__attribute__((noreturn)) void ctl_script_become(const char *name, const char *const words[]);
/* Runs it with the facts, which it takes, at its standard input. Gives its exit code. */
int ctl_script_print(const char *name, const char *const words[], json_t *facts);

/* Gives the answer, which it takes, as JSON or as what text.py makes of it for people. Gives the
 * exit code. */
int ctl_answer(const struct ctl *ctl, json_t *answer);

/* ---- supervision.c ---- */
/* {state, pid, since_ms}: "none" (no actor lives, or systemd has a unit for each), "supervised",
 * "stopped" (by SIGSTOP) or "unsupervised" (since 1970; 0: not known). New reference. */
json_t *ctl_supervision(const struct ctl *ctl);

/* ---- pages.c ---- */
/* Calls each() for every metrics page of the node: false stops. Gives how many pages there are,
 * CTL_PAGES_MAX at most. */
uint32_t ctl_pages(const struct ctl *ctl, bool (*each)(void *context, struct sl_metrics_view *view),
                   void *context);
/* Whether the registrar whose metrics page lies in this directory is alive. */
bool ctl_registrar_lives(const char *shm_dir);
/* 0: it does not live. */
uint32_t ctl_registrar_pid(const char *shm_dir);
/* There is none: no node, or one of another build. Gives the error, never SL_OK. */
sl_err ctl_no_pages(const struct ctl *ctl, struct sl_error *why);
/* The value of the metric of that name; 0: the page has none. */
uint64_t ctl_page_metric(const struct sl_metrics_view *view, const char *wanted);

#endif
