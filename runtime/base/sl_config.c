/* runtime/base/sl_config.c - the table of settings and its four sources. All values go through the
 * same typed parser, so that all errors look alike. */
#include "runtime/base/sl_config.h"
#include "runtime/base/config_file.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_arguments.h"
#include "runtime/base/sl_parse.h"
#include "runtime/base/sl_trust.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

struct setting_row {
    const char *name;
    enum sl_setting_kind kind;
    const char *standard;
    uint64_t low, high;
    const char *help;
};

#define SETTING_ROW(name, kind, standard, low, high, help) \
    {#name, SL_SETTING_##kind, standard, low, high, help},
static const struct setting_row setting_rows[] = {SL_SETTING_TABLE(SETTING_ROW)};

struct setting_value {
    uint64_t number;
    char *text;
    char source[SL_CONFIG_SOURCE_BYTES];
};

struct sl_config {
    struct setting_value values[SL_SETTING_COUNT_OF];
    char *file;       /* NULL: none was read */
    bool file_secret; /* it has a password */
};

/* ---------------------------------------------------------------- values */

static sl_err setting_parse(const struct setting_row *row, const char *text, uint64_t *number,
                            struct sl_error *why)
{
    sl_err err = SL_OK;
    bool is_true = false;
    switch (row->kind) {
    case SL_SETTING_BOOL:
        err = sl_parse_bool(text, &is_true, why);
        *number = is_true;
        return err;
    case SL_SETTING_COUNT:
        return sl_parse_count(text, number, why);
    case SL_SETTING_SIZE:
        return sl_parse_size(text, number, why);
    case SL_SETTING_DURATION:
        return sl_parse_duration(text, number, why);
    case SL_SETTING_RATIO:
        return sl_parse_ratio(text, number, why);
    case SL_SETTING_TEXT:
        *number = strlen(text);
        return SL_OK;
    }
    return SL_ERR_INTERNAL;
}

bool sl_setting_find(const char *name, size_t length, enum sl_setting *out)
{
    for (size_t i = 0; i < SL_COUNT(setting_rows); i++) {
        if (sl_option_is(setting_rows[i].name, name, length)) {
            *out = (enum sl_setting)i;
            return true;
        }
    }
    return false;
}

#define REMOVED_GUESTS                                                                           \
    "an engine of another user runs a node of its own, as a peer over loopback; an engine in a " \
    "container runs as the node's user"

#define REMOVED_GATE                                                                                     \
    "leave it out; a client in another container shares two directories with its node, runtime_dir and " \
    "shm_dir, and runs as its user"

/* Settings of the previous release that were removed, with the remedy. Rows last one release. */
static const struct {
    const char *name, *advice;
} removed_settings[] = {
    {"attach", REMOVED_GATE},
    {"client_pin_bytes_max", "leave it out: a client pins half of memory at most"},
    {"clients_allow", REMOVED_GUESTS},
    {"clients_of_user", REMOVED_GUESTS},
    {"clients_pin_bytes_max", REMOVED_GUESTS},
    {"clients_pool_bytes_max", REMOVED_GUESTS},
    {"clients_window", REMOVED_GUESTS},
    {"clients_write", REMOVED_GUESTS},
    {"contribution_strategy",
     "leave it out: a put is charged to the contribution it prefers, or the emptiest"},
    {"directory_rate", "leave it out: 50000 keys a second are published"},
    {"disk_commit_delay", "leave it out: writes wait 5 ms at most for one sync"},
    {"engine_huge_pages", "leave it out: a registration takes 1 s at most for huge pages"},
    {"events_delay", "leave it out: the index is scanned every 10 ms at most"},
    {"events_disk_medium", "leave it out: the medium of a disk is DISK"},
    {"events_kept_bytes", "leave it out: 64 MiB are kept; events_kept bounds the number"},
    {"fabric_greet", "leave it out: a connection has 1 s to authenticate"},
    {"fabric_movers", "use fabric_io_threads"},
    {"fabric_peers_max", "leave it out: 64 peers"},
    {"fabric_processes", "leave it out: one transporter drives all addresses and NICs of a node"},
    {"fabric_spin", "leave it out: the fabric never polls without a wait"},
    {"fabric_stall", "use fabric_progress_timeout"},
    {"fabric_strangers", "use fabric_unauthenticated_max"},
    {"fabric_zero_copy", "leave it out: sent bytes are always copied to the kernel"},
    {"fetch_trips_max", "use fetch_batches_max"},
    {"gate", REMOVED_GATE},
    {"grants_ahead_bytes_max", "leave it out: prealloc_max bounds a client's extents"},
    {"grants_ahead_max", "use prealloc_max"},
    {"guard_memory", "leave it out: files that others truncate never end a process"},
    {"handover_bytes_max", "leave it out: half of memory at most is held for decode"},
    {"handover_push_fallback", "use handover_fallback: hand-overs are not pushed any more"},
    {"load_keeps", "use cache_remote_loads"},
    {"log_lines_per_s", "leave it out: an actor logs 200 lines a second at most"},
    {"nic_processes", "leave it out: one transporter drives all addresses and NICs of a node"},
    {"peer_failures_max", "leave it out: peer_backoff begins after 3 failures in a row"},
    {"peer_missing_max", "leave it out: 65536 keys; peer_missing_ttl 0 turns that off"},
    {"pushes_max", "leave it out: 256 messages of hand-overs are read at once"},
    {"queue_bytes", "leave it out: a queue has 512 KiB each way"},
    {"queues", "leave it out: processes of a node talk over shared memory only"},
    {"remote_pin_bytes_max", "leave it out: all peers together pin a quarter of memory at most"},
    {"swap_threads", "leave it out: cores divided by ranks, 4 at most, copy plain memory"},
    {"ticket_ttl_max", "leave it out: a hand-over ends at the deadlines of its ops"},
};

sl_err sl_setting_unknown(const char *name, size_t length, const char *source, const char *kind,
                          struct sl_error *why)
{
    for (size_t i = 0; i < SL_COUNT(removed_settings); i++) {
        if (sl_option_is(removed_settings[i].name, name, length)) {
            return sl_fail(why, SL_ERR_CONFIG, "%s: the setting '%s' was removed: %s",
                           sl_config_source_end(source), removed_settings[i].name,
                           removed_settings[i].advice);
        }
    }
    return sl_fail(why, SL_ERR_CONFIG, "%s: unknown %s '%.*s'", sl_config_source_end(source), kind,
                   (int)SL_MIN(length, (size_t)64), name);
}

const char *sl_config_source_end(const char *source)
{
    enum { SHOWN_BYTES = 80 };
    size_t length = strlen(source);
    return length > SHOWN_BYTES ? source + (length - SHOWN_BYTES) : source;
}

static const struct {
    enum sl_setting setting;
    const char *words; /* each between spaces */
} text_choices[] = {
#define CHOICE_ROW(name, words) {SL_SET_##name, words},
    SL_SETTING_CHOICES(CHOICE_ROW)
#undef CHOICE_ROW
};

/* The words that a TEXT setting accepts, each between spaces; NULL: any text. */
static const char *choices_of(int index)
{
    for (size_t i = 0; i < SL_COUNT(text_choices); i++) {
        if ((int)text_choices[i].setting == index) {
            return text_choices[i].words;
        }
    }
    return NULL;
}

/* Checks an address to listen on: a word, or HOST:PORT. */
static sl_err setting_check_address(int index, const char *text, const char *source,
                                    struct sl_error *why)
{
    static const struct {
        enum sl_setting setting;
        const char *word;
    } rows[] = {{SL_SET_metrics_listen, "off"},
                {SL_SET_events_listen, "off"},
                {SL_SET_events_replay_listen, "auto"}};
    char host[256];
    uint16_t port = 0;
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (index == (int)rows[i].setting && strcmp(text, "local") != 0 &&
            strcmp(text, rows[i].word) != 0 && !sl_address_parse(text, host, sizeof(host), &port)) {
            char shown[72];
            (void)sl_url_redact(text, shown, sizeof(shown));
            return sl_fail(why, SL_ERR_CONFIG, "%s: %s: '%.64s' is none of local, %s and HOST:PORT",
                           source, setting_rows[index].name, shown, rows[i].word);
        }
    }
    return SL_OK;
}

static sl_err setting_check_text(int index, const char *text, const char *source,
                                 struct sl_error *why)
{
    const char *name = setting_rows[index].name;
    for (const char *at = text; *at != '\0'; at++) {
        if (iscntrl((unsigned char)*at)) {
            return sl_fail(why, SL_ERR_CONFIG, "%s: %s: control character 0x%02x", source, name,
                           (unsigned)(unsigned char)*at);
        }
    }
    const char *choices = choices_of(index);
    char spaced[SL_SETTING_TEXT_BYTES_MAX + 3];
    (void)snprintf(spaced, sizeof(spaced), " %s ", text);
    if (choices != NULL && (strchr(text, ' ') != NULL || strstr(choices, spaced) == NULL)) {
        char shown[72];
        (void)sl_url_redact(text, shown, sizeof(shown));
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s: '%.64s' is none of%s", source, name, shown,
                       choices);
    }
    char shown[SL_SETTING_TEXT_BYTES_MAX + 8];
    if (index != (int)SL_SET_directory_url && sl_url_redact(text, shown, sizeof(shown))) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s: '%.64s': no password belongs here", source,
                       name, shown);
    }
    if (index == (int)SL_SET_directory_url && text[0] != '\0' &&
        strncmp(text, "redis://", 8) != 0 && strncmp(text, "unix://", 7) != 0) {
        /* Not quoted: the text may have a password, and its place is known only in a URL. */
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s: begins with neither redis:// nor unix://",
                       source, name);
    }
    return setting_check_address(index, text, source, why);
}

static sl_err setting_check_range(int index, uint64_t number, const char *text, const char *source,
                                  struct sl_error *why)
{
    const struct setting_row *row = &setting_rows[index];
    static const char *const measures[] = {
        [SL_SETTING_SIZE] = " bytes",
        [SL_SETTING_DURATION] = " ns",
        [SL_SETTING_RATIO] = " millionths",
        [SL_SETTING_TEXT] = " characters",
    };
    if (number >= row->low && number <= row->high) {
        return SL_OK;
    }
    const char *measure = measures[row->kind];
    char shown[72];
    (void)sl_url_redact(text, shown, sizeof(shown));
    return sl_fail(why, SL_ERR_CONFIG,
                   "%s: %s: '%.64s' is out of range: %" PRIu64 " to %" PRIu64 "%s", source,
                   row->name, shown, row->low, row->high, measure != NULL ? measure : "");
}

/* Every user of the machine can read a command line: no password may be on it. */
static sl_err setting_check_secret(int index, const char *text, const char *source,
                                   struct sl_error *why)
{
    bool command_line = strncmp(source, "--", 2) == 0;
    char shown[SL_SETTING_TEXT_BYTES_MAX + 8];
    if (!command_line || setting_rows[index].kind != SL_SETTING_TEXT ||
        !sl_url_redact(text, shown, sizeof(shown))) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_CONFIG,
                   "%s: no password on a command line, which every user here can read: set "
                   "directory_password_file, or the url in SLUICE_DIRECTORY_URL or a --config file",
                   source);
}

sl_err sl_config_assign(struct sl_config *config, enum sl_setting setting, const char *text,
                        const char *source, struct sl_error *why)
{
    const int index = (int)setting;
    const struct setting_row *row = &setting_rows[index];
    const char *shown = sl_config_source_end(source);
    struct sl_error inner = {0};
    uint64_t number = 0;
    sl_err err = setting_parse(row, text, &number, &inner);
    if (err != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s: %s", shown, row->name, inner.text);
    }
    if (row->kind == SL_SETTING_TEXT) {
        err = setting_check_text(index, text, shown, why);
    }
    err = err == SL_OK ? setting_check_range(index, number, text, shown, why) : err;
    if (err == SL_OK) {
        err = setting_check_secret(index, text, shown, why);
    }
    if (err != SL_OK) {
        return err;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return sl_fail_os(why, ENOMEM, "%s", row->name);
    }
    struct setting_value *value = &config->values[index];
    free(value->text);
    value->text = copy;
    value->number = number;
    (void)snprintf(value->source, sizeof(value->source), "%s", source);
    return SL_OK;
}

/* Sets a value from the environment or a command line. */
static sl_err setting_take(struct sl_config *config, enum sl_setting setting, const char *text,
                           const char *source, struct sl_error *why)
{
    char value[SL_CONFIG_VALUE_BYTES];
    sl_err err = sl_config_value_read(text, sl_config_source_end(source), value, why);
    return err == SL_OK ? sl_config_assign(config, setting, value, source, why) : err;
}

sl_err sl_config_set(struct sl_config *config, const char *name, const char *text,
                     const char *source, struct sl_error *why)
{
    enum sl_setting setting;
    if (!sl_setting_find(name, strlen(name), &setting)) {
        return sl_setting_unknown(name, strlen(name), source, "setting", why);
    }
    return setting_take(config, setting, text, source, why);
}

sl_err sl_config_create(struct sl_config **out, struct sl_error *why)
{
    struct sl_config *config = calloc(1, sizeof(*config));
    if (config == NULL) {
        return sl_fail_os(why, ENOMEM, "settings");
    }
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        sl_err err =
            sl_config_assign(config, (enum sl_setting)i, setting_rows[i].standard, "default", why);
        if (err != SL_OK) {
            sl_config_destroy(&config);
            return err;
        }
    }
    *out = config;
    return SL_OK;
}

void sl_config_destroy(struct sl_config **config)
{
    if (*config == NULL) {
        return;
    }
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        free((*config)->values[i].text);
    }
    free((*config)->file);
    free(*config);
    *config = NULL;
}

sl_err sl_config_file_note(struct sl_config *config, const char *path, bool secret,
                           struct sl_error *why)
{
    free(config->file);
    config->file = strdup(path);
    config->file_secret = secret;
    return config->file != NULL ? SL_OK : sl_fail_os(why, ENOMEM, "settings");
}

const char *sl_config_file(const struct sl_config *config)
{
    return config->file;
}

sl_err sl_config_check_access(const struct sl_config *config, struct sl_error *why)
{
    if (config->file == NULL) {
        return SL_OK;
    }
    SL_AUTO(free) char *text = malloc(SL_CONFIG_FILE_BYTES_MAX + 1);
    if (text == NULL) {
        return sl_fail_os(why, ENOMEM, "settings");
    }
    sl_err err = sl_trust_read(config->file, config->file_secret ? SL_TRUST_GROUP : SL_TRUST_RIGHT,
                               false, text, SL_CONFIG_FILE_BYTES_MAX + 1, why);
    explicit_bzero(text, SL_CONFIG_FILE_BYTES_MAX + 1);
    return err;
}

/* ---------------------------------------------------------------- environment and command line */

/* Prefixes of Sluice's variables that are not settings; SLUICE_BACKEND_: of the Python package. */
static const char *const other_variables[] = {
    "SLUICE_BIN=",  "SLUICE_METRICS_TOKEN=", "SLUICE_METRICS_TOKEN_FILE=",
    "SLUICE_TEST_", "SLUICE_BACKEND_",       NULL};

static bool environment_is_other(const char *variable)
{
    for (const char *const *at = other_variables; *at != NULL; at++) {
        if (strncmp(variable, *at, strlen(*at)) == 0) {
            return true;
        }
    }
    return false;
}

static sl_err config_load_environment(struct sl_config *config, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (char **at = environ; at != NULL && *at != NULL && err == SL_OK; at++) {
        const char *equals = strchr(*at, '=');
        if (equals == NULL || strncmp(*at, "SLUICE_", 7) != 0 || environment_is_other(*at)) {
            continue;
        }
        char source[64], name[64];
        size_t length = (size_t)(equals - *at);
        (void)snprintf(source, sizeof(source), "%.*s", (int)length, *at);
        for (size_t i = 7; i <= length && i - 7 < sizeof(name); i++) {
            name[i - 7] = i == length ? '\0' : (char)tolower((unsigned char)(*at)[i]);
        }
        name[sizeof(name) - 1] = '\0';
        enum sl_setting setting;
        if (length - 7 >= sizeof(name) || !sl_setting_find(name, length - 7, &setting)) {
            return sl_setting_unknown(name, strlen(name), source, "setting", why);
        }
        err = setting_take(config, setting, equals + 1, source, why);
    }
    return err;
}

/* Engines' variables for the same settings. Sluice's own win. Units here are powers of 1024. */
static const struct {
    const char *variable;
    enum sl_setting setting;
} foreign_variables[] = {
    {"VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO", SL_SET_disk_staging_usable},
    {"MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", SL_SET_disk_staging},
    {"MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", SL_SET_disk_path},
};

static sl_err config_load_foreign(struct sl_config *config, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (size_t i = 0; i < SL_COUNT(foreign_variables) && err == SL_OK; i++) {
        enum sl_setting setting = foreign_variables[i].setting;
        const char *text = getenv(foreign_variables[i].variable);
        char bytes[24];
        uint64_t size = 0;
        if (text != NULL && setting_rows[setting].kind == SL_SETTING_SIZE &&
            sl_parse_size_1024(text, &size, NULL) == SL_OK) {
            (void)snprintf(bytes, sizeof(bytes), "%" PRIu64, size);
            text = bytes;
        }
        if (text != NULL && text[0] != '\0') {
            err = setting_take(config, setting, text, foreign_variables[i].variable, why);
        }
    }
    return err;
}

/* Options that are not settings. */
enum { OPTION_CONFIG = SL_SETTING_COUNT_OF, OPTION_HELP, OPTION_VERSION };

static enum sl_option_takes option_find(const void *table, const char *name, size_t length,
                                        int *option)
{
    enum sl_setting setting;
    (void)table;
    if (sl_setting_find(name, length, &setting)) {
        *option = (int)setting;
        return SL_OPTION_VALUE;
    }
    if (sl_option_is("config", name, length)) {
        *option = OPTION_CONFIG;
        return SL_OPTION_VALUE;
    }
    *option = sl_option_is("help", name, length) ? OPTION_HELP : OPTION_VERSION;
    return *option == OPTION_HELP || sl_option_is("version", name, length) ? SL_OPTION_NOTHING
                                                                           : SL_OPTION_UNKNOWN;
}

/* "--op-timeout" */
static void option_name(int option, char out[40])
{
    (void)snprintf(out, 40, "--%s", setting_rows[option].name);
    for (char *at = out; *at != '\0'; at++) {
        *at = *at == '_' ? '-' : *at;
    }
}

/* Applies an option. With assign false it only handles --config, in *file. */
static sl_err option_take(struct sl_config *config, bool assign, const struct sl_argument *got,
                          const char **file, struct sl_error *why)
{
    char source[40];
    if (got->option == OPTION_HELP || got->option == OPTION_VERSION) {
        return sl_fail(why, SL_ERR_CANCELLED, "%s",
                       got->option == OPTION_HELP ? "help" : "version");
    }
    if (got->option == OPTION_CONFIG) {
        *file = got->value;
    } else if (assign) {
        option_name(got->option, source);
        return setting_take(config, (enum sl_setting)got->option, got->value, source, why);
    }
    return SL_OK;
}

/* Walks over the arguments up to the first that is not an option. */
static sl_err arguments_walk(struct sl_config *config, bool assign, int argc, char **argv,
                             const char **file, int *rest, struct sl_error *why)
{
    struct sl_arguments walk = {
        .argc = argc, .argv = argv, .dash = SL_DASH_UNKNOWN, .find = option_find, .at = 1};
    struct sl_argument got;
    enum sl_argument_kind kind;
    while ((kind = sl_arguments_next(&walk, &got)) == SL_ARGUMENT_OPTION) {
        sl_err err = option_take(config, assign, &got, file, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (kind == SL_ARGUMENT_NO_VALUE) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s: a value is missing", got.word);
    }
    if (kind == SL_ARGUMENT_UNKNOWN) {
        return sl_setting_unknown(got.name, (size_t)got.name_length, got.word, "option", why);
    }
    if (kind == SL_ARGUMENT_UNWANTED) {
        return sl_fail(why, SL_ERR_CONFIG, "%.80s: takes no value", got.word);
    }
    if (rest != NULL) {
        *rest = walk.at - (kind == SL_ARGUMENT_WORD);
    } else if (kind == SL_ARGUMENT_WORD) {
        return sl_fail(why, SL_ERR_CONFIG, "unexpected argument '%.80s'; see --help", got.word);
    }
    return SL_OK;
}

sl_err sl_config_load(struct sl_config *config, const char *file, int argc, char **argv, int *rest,
                      struct sl_error *why)
{
    sl_err err = argc > 0 ? arguments_walk(config, false, argc, argv, &file, rest, why) : SL_OK;
    if (err == SL_OK) {
        err = config_load_foreign(config, why);
    }
    if (err == SL_OK && file != NULL) {
        err = sl_config_file_load(config, file, why);
    }
    if (err == SL_OK) {
        err = config_load_environment(config, why);
    }
    if (err == SL_OK && argc > 0) {
        err = arguments_walk(config, true, argc, argv, &file, rest, why);
    }
    return err;
}

/* ---------------------------------------------------------------- reading */

bool sl_config_bool(const struct sl_config *config, enum sl_setting setting)
{
    SL_ASSERT(setting_rows[setting].kind == SL_SETTING_BOOL);
    return config->values[setting].number != 0;
}

uint64_t sl_config_u64(const struct sl_config *config, enum sl_setting setting)
{
    SL_ASSERT(setting_rows[setting].kind != SL_SETTING_TEXT);
    return config->values[setting].number;
}

const char *sl_config_text(const struct sl_config *config, enum sl_setting setting)
{
    return config->values[setting].text;
}

const char *sl_config_source(const struct sl_config *config, enum sl_setting setting)
{
    return config->values[setting].source;
}

const char *sl_setting_name(enum sl_setting setting)
{
    return setting_rows[setting].name;
}

void sl_config_print_help(void *stream)
{
    static const char *const kinds[] = {"BOOL", "N", "SIZE", "DURATION", "RATIO", "TEXT"};
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        const struct setting_row *row = &setting_rows[i];
        char name[40], left[64];
        option_name(i, name);
        (void)snprintf(left, sizeof(left), "%s %s", name, kinds[row->kind]);
        (void)fprintf(stream, "  %-34s %s (default: %s)\n", left, row->help,
                      row->standard[0] != '\0' ? row->standard : "none");
    }
    (void)fprintf(stream, "  %-34s %s\n", "--config FILE",
                  "settings file: lines of `name = value`, # comments");
}
