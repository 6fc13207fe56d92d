/* client/ctl.h - what the commands of sluicectl share. */
#ifndef SL_CTL_H
#define SL_CTL_H

#include "client/sluice.h"
#include "runtime/sl_config.h"

#include <jansson.h>
#include <stdio.h>

enum ctl_exit { CTL_FINE = 0, CTL_NO = 1, CTL_WRONG_USE = 2, CTL_UNREACHABLE = 3 };

#define CTL_SETTINGS_MAX 64u

struct ctl {
    const struct ctl_command *command;
    struct sl_config *config; /* all sources, the command line included */
    struct sl_paths paths;
    const char *config_file;
    const char *settings[CTL_SETTINGS_MAX + 1]; /* "name=value" from the command line */
    char *setting_texts[CTL_SETTINGS_MAX];      /* owned */
    uint32_t setting_count;
    bool json;
    json_t *rows; /* an array that collects what would be printed as JSON; NULL: print it */
    char **words; /* arguments that are no options */
    int word_count;
};

/* An option of a command: with value (text != NULL) or without (flag). Parsed: at most one of the
 * others is set. */
struct ctl_option {
    const char *name; /* without the dashes */
    bool *flag;
    const char **text;
    uint64_t *count;    /* decimal */
    uint64_t *size;     /* as sizes in the settings */
    uint64_t *duration; /* as durations in the settings */
};

struct ctl_command {
    const char *name;
    const char *summary;
    const char *help; /* usage, options, examples */
    int (*run)(struct ctl *ctl, int argc, char **argv);
};

/* Parses options and settings; words and options may be mixed. `--json` is taken as a flag unless
 * the command has an option of that name. False: *exit_code says how to end (--help was printed, or
 * the use was wrong). */
bool ctl_parse(struct ctl *ctl, int argc, char **argv, const struct ctl_option *options,
               uint32_t option_count, int *exit_code);
/* Wrong use: prints and gives CTL_WRONG_USE. */
int ctl_wrong(const struct ctl *ctl, const char *format, ...) SL_PRINTF(2, 3);
/* A failed call: prints, with --json as an object too, and gives the exit code of its error. */
int ctl_failed(const struct ctl *ctl, const struct sl_error *why);
sl_err ctl_open(const struct ctl *ctl, bool read_only, struct sl_client **out,
                struct sl_error *why);
/* Prints and frees. */
void ctl_print_json(json_t *object);
/* The same, or appends it to ctl->rows. */
void ctl_give_json(const struct ctl *ctl, json_t *object);
/* Text of any bytes: as UTF-8, or "hex:..." when they are none. New reference. */
json_t *ctl_json_bytes(const char *bytes, size_t length);
json_t *ctl_json_u64(uint64_t value);
/* Writes bytes for people: control characters are escaped. */
void ctl_print_bytes(FILE *out, const char *bytes, size_t length);
/* "4.0 KiB" */
const char *ctl_size_text(uint64_t bytes, char out[32]);

/* Calls each() for every metrics page of the node: false stops. Gives how many pages there are. */
struct sl_metrics_view;
uint32_t ctl_pages(const struct ctl *ctl, bool (*each)(void *context, struct sl_metrics_view *view),
                   void *context);
/* There is none: no node, or one of another build. Gives the error, never SL_OK. */
sl_err ctl_no_pages(const struct ctl *ctl, struct sl_error *why);

int ctl_put(struct ctl *ctl, int argc, char **argv);
int ctl_get(struct ctl *ctl, int argc, char **argv);
int ctl_exists(struct ctl *ctl, int argc, char **argv);
int ctl_prefetch(struct ctl *ctl, int argc, char **argv);
int ctl_rm(struct ctl *ctl, int argc, char **argv);
int ctl_ls(struct ctl *ctl, int argc, char **argv);
int ctl_stat(struct ctl *ctl, int argc, char **argv);
int ctl_explain(struct ctl *ctl, int argc, char **argv);
int ctl_flush(struct ctl *ctl, int argc, char **argv);
int ctl_status(struct ctl *ctl, int argc, char **argv);
int ctl_trace(struct ctl *ctl, int argc, char **argv);
int ctl_keys(struct ctl *ctl, int argc, char **argv);
int ctl_messages(struct ctl *ctl, int argc, char **argv);
int ctl_config(struct ctl *ctl, int argc, char **argv);
int ctl_workload(struct ctl *ctl, int argc, char **argv);
int ctl_bench(struct ctl *ctl, int argc, char **argv);
/* ctl_bench_queue.c: frames of size_bytes (0: 64), measured for measure_ns in all. */
int ctl_bench_queue(struct ctl *ctl, uint64_t size_bytes, uint64_t measure_ns);
int ctl_nodes(struct ctl *ctl, int argc, char **argv);
int ctl_contributions(struct ctl *ctl, int argc, char **argv);
int ctl_pools(struct ctl *ctl, int argc, char **argv);
int ctl_keygen(struct ctl *ctl, int argc, char **argv);
int ctl_tiers(struct ctl *ctl, int argc, char **argv);
int ctl_doctor(struct ctl *ctl, int argc, char **argv);
int ctl_replay(struct ctl *ctl, int argc, char **argv);
int ctl_pd_demo(struct ctl *ctl, int argc, char **argv);

#endif
