/* runtime/sl_config.c - the table of settings and its four sources. libconfuse reads the file's
 * syntax; every value from wherever goes through the same typed parser, so that all errors look
 * alike. */
#include "runtime/sl_config.h"
#include "runtime/sl_parse.h"

#include <confuse.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

#define SOURCE_BYTES 320

struct setting_value {
    uint64_t number;
    char *text;
    char source[SOURCE_BYTES];
};

struct sl_config {
    struct setting_value values[SL_SETTING_COUNT_OF];
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

static int setting_find(const char *name, size_t length)
{
    for (size_t i = 0; i < SL_COUNT(setting_rows); i++) {
        const char *own = setting_rows[i].name;
        size_t at = 0;
        while (at < length && own[at] != '\0' &&
               (name[at] == own[at] || (name[at] == '-' && own[at] == '_'))) {
            at++;
        }
        if (at == length && own[at] == '\0') {
            return (int)i;
        }
    }
    return -1;
}

/* The end of a source: of a long path it is the end that tells files apart, and an error's text is
 * short. */
static const char *source_end(const char *source)
{
    enum { SHOWN_BYTES = 80 };
    size_t length = strlen(source);
    return length > SHOWN_BYTES ? source + (length - SHOWN_BYTES) : source;
}

static const struct {
    enum sl_setting setting;
    const char *words; /* one behind the other, each between spaces */
} text_choices[] = {
    {SL_SET_log_level, " error warn info debug trace "},
    {SL_SET_device, " auto cuda host "},
};

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
    for (size_t i = 0; i < SL_COUNT(text_choices); i++) {
        char spaced[SL_SETTING_TEXT_BYTES_MAX + 3];
        (void)snprintf(spaced, sizeof(spaced), " %s ", text);
        if ((int)text_choices[i].setting == index &&
            (strchr(text, ' ') != NULL || strstr(text_choices[i].words, spaced) == NULL)) {
            return sl_fail(why, SL_ERR_CONFIG, "%s: %s: '%.64s' is none of%s", source, name, text,
                           text_choices[i].words);
        }
    }
    return SL_OK;
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
    return sl_fail(why, SL_ERR_CONFIG, "%s: %s: '%.64s' is out of range: %llu to %llu%s", source,
                   row->name, text, (unsigned long long)row->low, (unsigned long long)row->high,
                   measure != NULL ? measure : "");
}

static sl_err setting_assign(struct sl_config *config, int index, const char *text,
                             const char *source, struct sl_error *why)
{
    const struct setting_row *row = &setting_rows[index];
    const char *shown = source_end(source);
    struct sl_error inner = {0};
    uint64_t number = 0;
    sl_err err = setting_parse(row, text, &number, &inner);
    if (err != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s: %s", shown, row->name, inner.text);
    }
    err = setting_check_range(index, number, text, shown, why);
    if (err == SL_OK && row->kind == SL_SETTING_TEXT) {
        err = setting_check_text(index, text, shown, why);
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

sl_err sl_config_set(struct sl_config *config, const char *name, const char *text,
                     const char *source, struct sl_error *why)
{
    int index = setting_find(name, strlen(name));
    if (index < 0) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: unknown setting '%.64s'", source_end(source), name);
    }
    return setting_assign(config, index, text, source, why);
}

sl_err sl_config_create(struct sl_config **out, struct sl_error *why)
{
    struct sl_config *config = calloc(1, sizeof(*config));
    if (config == NULL) {
        return sl_fail_os(why, ENOMEM, "settings");
    }
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        sl_err err = setting_assign(config, i, setting_rows[i].standard, "default", why);
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
    free(*config);
    *config = NULL;
}

/* ---------------------------------------------------------------- file */

/* Far above any real file: what is larger was named by mistake (a disk image, /dev/zero). */
#define FILE_BYTES_MAX (1024 * 1024)

/* libconfuse's callbacks carry no context of ours: it stands here while a file is parsed. The
 * library's scanner and getopt keep their state in globals, so loading goes under a lock. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct {
    struct sl_config *config;
    struct sl_error *why;
    const char *path;
    const char *text; /* the line */
    int line;
    bool probing; /* the text is ours: is the scanner inside of a comment? */
    bool probed;  /* it is not */
} file_now;

#define PROBE_NAME "sl_probe"

SL_PRINTF(2, 0) static void file_report(cfg_t *cfg, const char *format, va_list arguments)
{
    char text[96];
    (void)cfg;
    (void)vsnprintf(text, sizeof(text), format, arguments);
    /* The first complaint is the cause, the others follow from it. */
    if (file_now.why->code == SL_OK) {
        (void)sl_fail(file_now.why, SL_ERR_CONFIG, "%s:%d: %s in '%.40s'",
                      source_end(file_now.path), file_now.line, text, file_now.text);
    }
}

/* Called after each `name = value`. */
static int file_value(cfg_t *cfg, cfg_opt_t *option)
{
    char source[SOURCE_BYTES];
    (void)cfg;
    if (file_now.probing) {
        file_now.probed = true;
        return 0;
    }
    const char *text = cfg_opt_getnstr(option, 0);
    (void)snprintf(source, sizeof(source), "%s:%d", file_now.path, file_now.line);
    struct sl_error why = {0};
    if (sl_config_set(file_now.config, cfg_opt_name(option), text != NULL ? text : "", source,
                      &why) != SL_OK) {
        if (file_now.why->code == SL_OK) {
            *file_now.why = why;
        }
        return -1;
    }
    return 0;
}

/* Whether the scanner, which goes on from one line to the next, is inside of a comment: there an
 * assignment is not seen. */
static bool file_in_comment(cfg_t *cfg)
{
    file_now.probing = true;
    file_now.probed = false;
    (void)cfg_parse_buf(cfg, PROBE_NAME " = 1\n");
    file_now.probing = false;
    return !file_now.probed;
}

/* Line by line: libconfuse 3.3 counts a line that has a comment twice, and no setting spans lines.
 * text is cut into lines in place. */
static sl_err file_parse_lines(cfg_t *cfg, char *text, struct sl_error *why)
{
    int comment_line = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        file_now.line++;
        file_now.text = line;
        if (line[0] == '\0') {
            continue;
        }
        if (cfg_parse_buf(cfg, line) != CFG_SUCCESS) {
            return why->code != SL_OK
                       ? SL_ERR_CONFIG
                       : sl_fail(why, SL_ERR_CONFIG, "%s:%d: '%.40s' cannot be parsed",
                                 source_end(file_now.path), file_now.line, line);
        }
        if (comment_line != 0 || strstr(line, "/*") != NULL) {
            bool inside = file_in_comment(cfg);
            comment_line = !inside ? 0 : comment_line != 0 ? comment_line : file_now.line;
        }
    }
    return comment_line == 0 ? SL_OK
                             : sl_fail(why, SL_ERR_CONFIG, "%s:%d: the comment is never closed",
                                       source_end(file_now.path), comment_line);
}

static sl_err file_parse(struct sl_config *config, const char *path, char *text,
                         struct sl_error *why)
{
    cfg_opt_t options[SL_SETTING_COUNT_OF + 2];
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        options[i] = (cfg_opt_t)CFG_STR(setting_rows[i].name, NULL, CFGF_NODEFAULT);
    }
    options[SL_SETTING_COUNT_OF] = (cfg_opt_t)CFG_STR(PROBE_NAME, NULL, CFGF_NODEFAULT);
    options[SL_SETTING_COUNT_OF + 1] = (cfg_opt_t)CFG_END();
    cfg_t *cfg = cfg_init(options, CFGF_NONE);
    if (cfg == NULL) {
        return sl_fail_os(why, ENOMEM, "config file '%s'", path);
    }
    struct sl_error inner = {0};
    file_now.config = config;
    file_now.why = &inner;
    file_now.path = path;
    file_now.line = 0;
    (void)cfg_set_error_function(cfg, file_report);
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        (void)cfg_set_validate_func(cfg, setting_rows[i].name, file_value);
    }
    (void)cfg_set_validate_func(cfg, PROBE_NAME, file_value);
    sl_err err = file_parse_lines(cfg, text, &inner);
    if (err != SL_OK && why != NULL) {
        *why = inner;
    }
    (void)cfg_free(cfg);
    file_now.why = NULL;
    return err;
}

/* Gives the whole text, zero-terminated. */
static sl_err file_read(const char *path, char **out, struct sl_error *why)
{
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return sl_fail_os(why, errno, "config file '%s'", path);
    }
    SL_AUTO(free) char *text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        return sl_fail_os(why, ENOMEM, "config file '%s'", path);
    }
    size_t filled = 0;
    ssize_t got = 1;
    while (got != 0 && filled <= FILE_BYTES_MAX) {
        got = read(fd, text + filled, FILE_BYTES_MAX + 1 - filled);
        if (got < 0 && errno != EINTR) {
            return sl_fail_os(why, errno, "read config file '%s'", path);
        }
        filled += got > 0 ? (size_t)got : 0;
    }
    if (filled > FILE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_CONFIG, "config file '%s' is larger than %d bytes",
                       source_end(path), FILE_BYTES_MAX);
    }
    text[filled] = '\0';
    if (strlen(text) != filled) {
        return sl_fail(why, SL_ERR_CONFIG, "config file '%s' is no text: zero byte at offset %zu",
                       source_end(path), strlen(text));
    }
    *out = SL_TAKE(text);
    return SL_OK;
}

static sl_err config_load_file(struct sl_config *config, const char *path, struct sl_error *why)
{
    SL_AUTO(free) char *text = NULL;
    sl_err err = file_read(path, &text, why);
    return err == SL_OK ? file_parse(config, path, text, why) : err;
}

/* ---------------------------------------------------------------- environment and command line */

/* Variables of ours that are no settings. */
static const char *const other_variables[] = {"SLUICE_BIN", NULL};

static bool environment_is_other(const char *variable, size_t length)
{
    for (const char *const *at = other_variables; *at != NULL; at++) {
        if (strlen(*at) == length && strncmp(variable, *at, length) == 0) {
            return true;
        }
    }
    return strncmp(variable, "SLUICE_TEST_", 12) == 0;
}

static sl_err config_load_environment(struct sl_config *config, struct sl_error *why)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        if (equals == NULL || strncmp(*at, "SLUICE_", 7) != 0 ||
            environment_is_other(*at, (size_t)(equals - *at))) {
            continue;
        }
        char source[64];
        char name[64];
        size_t length = (size_t)(equals - *at);
        (void)snprintf(source, sizeof(source), "%.*s", (int)length, *at);
        for (size_t i = 7; i <= length && i - 7 < sizeof(name); i++) {
            name[i - 7] = i == length ? '\0' : (char)tolower((unsigned char)(*at)[i]);
        }
        name[sizeof(name) - 1] = '\0';
        int index = length - 7 < sizeof(name) ? setting_find(name, length - 7) : -1;
        if (index < 0) {
            return sl_fail(why, SL_ERR_CONFIG, "environment variable %s: unknown setting", source);
        }
        sl_err err = setting_assign(config, index, equals + 1, source, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* Names under which engines' deployments set the same things. They give way to ours, in file,
 * environment or command line; meaning and units are the same (bytes, a ratio). */
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
    for (size_t i = 0; i < SL_COUNT(foreign_variables); i++) {
        const char *text = getenv(foreign_variables[i].variable);
        if (text == NULL || text[0] == '\0') {
            continue;
        }
        sl_err err = setting_assign(config, (int)foreign_variables[i].setting, text,
                                    foreign_variables[i].variable, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

#define OPTION_CONFIG  (SL_SETTING_COUNT_OF + 1)
#define OPTION_HELP    (SL_SETTING_COUNT_OF + 2)
#define OPTION_VERSION (SL_SETTING_COUNT_OF + 3)
#define OPTION_BASE    1000 /* getopt's values for ours: clear of '?' and ':' */

struct option_names {
    struct option rows[SL_SETTING_COUNT_OF + 4];
    char names[SL_SETTING_COUNT_OF][32];
};

static void option_names_fill(struct option_names *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        (void)snprintf(out->names[i], sizeof(out->names[i]), "%s", setting_rows[i].name);
        for (char *at = out->names[i]; *at != '\0'; at++) {
            *at = *at == '_' ? '-' : *at;
        }
        out->rows[i] = (struct option){out->names[i], required_argument, NULL, OPTION_BASE + i};
    }
    out->rows[SL_SETTING_COUNT_OF] =
        (struct option){"config", required_argument, NULL, OPTION_BASE + OPTION_CONFIG};
    out->rows[SL_SETTING_COUNT_OF + 1] =
        (struct option){"help", no_argument, NULL, OPTION_BASE + OPTION_HELP};
    out->rows[SL_SETTING_COUNT_OF + 2] =
        (struct option){"version", no_argument, NULL, OPTION_BASE + OPTION_VERSION};
}

/* One walk over the arguments. With assign false only --config is looked for (into *file). */
static sl_err arguments_walk(struct sl_config *config, bool assign, int argc, char **argv,
                             const char **file, int *rest, struct sl_error *why)
{
    struct option_names names;
    option_names_fill(&names);
    optind = 0; /* glibc: start over */
    opterr = 0;
    for (;;) {
        int shown = optind == 0 ? 1 : optind;
        int row = 0;
        int got = getopt_long(argc, argv, "+:", names.rows, &row);
        if (got == -1) {
            break;
        }
        const char *word = shown < argc ? argv[shown] : "";
        if (got == ':') {
            return sl_fail(why, SL_ERR_CONFIG, "%.80s: a value is missing", word);
        }
        /* getopt takes beginnings for the whole: what is meant by --disk-s must not change with a
         * new setting. */
        if (got == '?' || strcspn(word, "=") != strlen(names.rows[row].name) + 2) {
            return sl_fail(why, SL_ERR_CONFIG, "%.80s: unknown option; see --help", word);
        }
        int option = got - OPTION_BASE;
        if (option == OPTION_HELP || option == OPTION_VERSION) {
            return sl_fail(why, SL_ERR_CANCELLED, "%s", option == OPTION_HELP ? "help" : "version");
        }
        if (option == OPTION_CONFIG) {
            *file = optarg;
        } else if (assign) {
            char source[40];
            (void)snprintf(source, sizeof(source), "--%s", names.names[option]);
            sl_err err = setting_assign(config, option, optarg, source, why);
            if (err != SL_OK) {
                return err;
            }
        }
    }
    if (rest != NULL) {
        *rest = optind;
    } else if (optind < argc) {
        return sl_fail(why, SL_ERR_CONFIG, "unexpected argument '%.80s'; see --help", argv[optind]);
    }
    return SL_OK;
}

static sl_err config_load(struct sl_config *config, const char *file, int argc, char **argv,
                          int *rest, struct sl_error *why)
{
    sl_err err = argc > 0 ? arguments_walk(config, false, argc, argv, &file, rest, why) : SL_OK;
    if (err == SL_OK) {
        err = config_load_foreign(config, why);
    }
    if (err == SL_OK && file != NULL) {
        err = config_load_file(config, file, why);
    }
    if (err == SL_OK) {
        err = config_load_environment(config, why);
    }
    if (err == SL_OK && argc > 0) {
        err = arguments_walk(config, true, argc, argv, &file, rest, why);
    }
    return err;
}

sl_err sl_config_load(struct sl_config *config, const char *file, int argc, char **argv, int *rest,
                      struct sl_error *why)
{
    (void)pthread_mutex_lock(&load_lock);
    sl_err err = config_load(config, file, argc, argv, rest, why);
    (void)pthread_mutex_unlock(&load_lock);
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
    struct option_names names;
    option_names_fill(&names);
    for (int i = 0; i < (int)SL_SETTING_COUNT_OF; i++) {
        const struct setting_row *row = &setting_rows[i];
        char left[64];
        (void)snprintf(left, sizeof(left), "--%s %s", names.names[i], kinds[row->kind]);
        (void)fprintf(stream, "  %-34s %s (default: %s)\n", left, row->help,
                      row->standard[0] != '\0' ? row->standard : "none");
    }
    (void)fprintf(stream, "  %-34s %s\n", "--config FILE",
                  "settings file: lines of `name = value`, # comments");
}
