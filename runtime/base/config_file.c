/* runtime/base/config_file.c - parses the settings file, one `name = value` per line, and values of
 * the environment and the command line.
 *
 * A value is the rest of its line up to a comment, or a text in single or double quotes;
 * ${VARIABLE} is expanded at its start and in double quotes. A comment is `#`, at the start of the
 * line or after a blank, and all after it. README.md says why no library does this. */
#include "runtime/base/config_file.h"
#include "runtime/base/sl_address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLANKS    " \t\r"
#define NAME_ENDS BLANKS "=#\"'"

struct scanner {
    const char *path; /* or the name of a single value's source */
    const char *at;   /* zero-terminated: a line, or a single value */
    const char *text; /* its start */
    int line;         /* 0: a single value, without comments */
    struct sl_error *why;
};

struct word {
    char text[SL_CONFIG_VALUE_BYTES];
    size_t length;
};

SL_PRINTF(2, 3) static sl_err scan_fail(struct scanner *scan, const char *format, ...)
{
    char text[96], shown[41];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)sl_url_redact(scan->text, shown, sizeof shown); /* it may have a password */
    const char *source = sl_config_source_end(scan->path);
    return scan->line == 0
               ? sl_fail(scan->why, SL_ERR_CONFIG, "%s: %s in '%s'", source, text, shown)
               : sl_fail(scan->why, SL_ERR_CONFIG, "%s:%d: %s in '%s'", source, scan->line, text,
                         shown);
}

static void blanks_skip(struct scanner *scan)
{
    scan->at += strspn(scan->at, BLANKS);
}

/* Whether the value ends at `at`: end of the text, or a comment. A `#` within a path is not one. */
static bool ends_at(const struct scanner *scan, const char *at)
{
    return *at == '\0' ||
           (*at == '#' && scan->line != 0 && (at == scan->text || strchr(BLANKS, at[-1]) != NULL));
}

/* Cuts a word that is too long to the buffer, which value_read then detects. */
static void word_put(struct word *word, const char *from, size_t length)
{
    length = SL_MIN(length, SL_CONFIG_VALUE_BYTES - 1 - word->length);
    memcpy(word->text + word->length, from, length);
    word->length += length;
    word->text[word->length] = '\0';
}

/* Expands ${NAME} or ${NAME:-DEFAULT}; false: there is none. */
static bool variable_read(struct scanner *scan, struct word *word)
{
    char name[256];
    size_t length = scan->at[0] == '$' && scan->at[1] == '{' ? strcspn(scan->at, "}") : 0;
    if (length < 2 || scan->at[length] != '}' || length - 2 >= sizeof name) {
        return false;
    }
    memcpy(name, scan->at + 2, length - 2);
    name[length - 2] = '\0';
    char *otherwise = strstr(name, ":-");
    if (otherwise != NULL) {
        *otherwise = '\0';
        otherwise += 2;
    }
    const char *value = getenv(name);
    value = value != NULL ? value : otherwise != NULL ? otherwise : "";
    word_put(word, value, strlen(value));
    scan->at += length + 1;
    return true;
}

/* A backslash escapes the quote, itself, and in double quotes a `$`. */
static sl_err quoted_read(struct scanner *scan, struct word *word)
{
    const char quote = *scan->at++;
    const char after[] = {'\\', quote, quote == '"' ? '$' : quote, '\0'};
    while (*scan->at != quote) {
        if (*scan->at == '\0') {
            return scan_fail(scan, "unterminated string constant");
        }
        if (quote == '"' && variable_read(scan, word)) {
            continue;
        }
        bool escape = *scan->at == '\\' && scan->at[1] != '\0';
        bool taken = escape && strchr(after, scan->at[1]) != NULL;
        if (escape && !taken && quote == '"') {
            return scan_fail(scan, "bad escape sequence '%.2s'", scan->at);
        }
        scan->at += taken;
        word_put(word, scan->at++, 1);
    }
    scan->at++;
    blanks_skip(scan);
    return ends_at(scan, scan->at)
               ? SL_OK
               : scan_fail(scan, "'%.20s' follows the value's quotes", scan->at);
}

/* Refuses text that once began a comment or a setting, rather than silently take it as a value. */
static sl_err bare_check(struct scanner *scan, const char *at)
{
    enum sl_setting setting;
    size_t length = strcspn(at, NAME_ENDS);
    bool names =
        at[length + strspn(at + length, BLANKS)] == '=' && sl_setting_find(at, length, &setting);
    bool comments = at[0] == '/' && (at[1] == '/' || at[1] == '*');
    return !names && !comments
               ? SL_OK
               : scan_fail(scan, "'%.*s' is part of a value: put the value in quotes",
                           comments ? 2 : (int)SL_MIN(length, (size_t)40), at);
}

/* Reads a value without quotes: blanks between its words are part of it. */
static sl_err bare_read(struct scanner *scan, struct word *word)
{
    sl_err err = SL_OK;
    (void)variable_read(scan, word);
    const char *end = scan->at;
    for (; err == SL_OK && !ends_at(scan, end); end++) {
        bool begins = scan->line != 0 && strchr(BLANKS, end[-1]) != NULL && /* after a name */
                      strchr(BLANKS, *end) == NULL;
        err = begins ? bare_check(scan, end) : SL_OK;
    }
    while (end > scan->at && strchr(BLANKS, end[-1]) != NULL) {
        end--;
    }
    word_put(word, scan->at, (size_t)(end - scan->at));
    return err;
}

/* Reads the value at scan->at, which may be empty. */
static sl_err value_read(struct scanner *scan, struct word *word)
{
    sl_err err = SL_OK;
    word->length = 0;
    word->text[0] = '\0';
    blanks_skip(scan);
    if (*scan->at == '"' || *scan->at == '\'') {
        err = quoted_read(scan, word);
    } else if (!ends_at(scan, scan->at)) {
        err = bare_read(scan, word);
    }
    return err != SL_OK || word->length < SL_CONFIG_VALUE_BYTES - 1
               ? err
               : scan_fail(scan, "a value of more than %d bytes", SL_CONFIG_VALUE_BYTES - 2);
}

sl_err sl_config_value_read(const char *text, const char *source, char out[SL_CONFIG_VALUE_BYTES],
                            struct sl_error *why)
{
    struct word value;
    struct scanner scan = {.path = source, .at = text, .text = text, .why = why};
    sl_err err = value_read(&scan, &value);
    if (err == SL_OK) {
        memcpy(out, value.text, value.length + 1);
    }
    return err;
}

/* Reads a line: a `name = value`, a comment, or nothing. */
static sl_err line_read(struct scanner *scan, struct sl_config *config)
{
    struct word value;
    char source[SL_CONFIG_SOURCE_BYTES], shown[8];
    enum sl_setting setting;
    blanks_skip(scan);
    if (ends_at(scan, scan->at)) {
        return SL_OK;
    }
    const char *name = scan->at;
    size_t length = SL_MAX(strcspn(name, NAME_ENDS), (size_t)1);
    (void)snprintf(source, sizeof source, "%s:%d", scan->path, scan->line);
    if (!sl_setting_find(name, length, &setting)) {
        return sl_setting_unknown(name, length, source, "setting", scan->why);
    }
    scan->at += length;
    blanks_skip(scan);
    if (*scan->at++ != '=') {
        return scan_fail(scan, "missing equal sign after option '%.*s'", (int)length, name);
    }
    sl_err err = value_read(scan, &value);
    err = err == SL_OK ? sl_config_assign(config, setting, value.text, source, scan->why) : err;
    return err == SL_OK && sl_url_redact(value.text, shown, sizeof(shown))
               ? sl_config_file_note(config, scan->path, true, scan->why)
               : err;
}

/* Scans the text line by line; modifies it. */
static sl_err file_scan(struct sl_config *config, const char *path, char *text,
                        struct sl_error *why)
{
    sl_err err = SL_OK;
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* byte order mark */
    for (int line = 1; err == SL_OK && text != NULL; line++) {
        struct scanner scan = {.path = path, .line = line, .why = why};
        scan.at = scan.text = strsep(&text, "\n");
        err = line_read(&scan, config);
    }
    return err;
}

/* Gives the whole text, zero-terminated. */
static sl_err file_read(const char *path, char **out, struct sl_error *why)
{
    struct stat status;
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        return sl_fail_os(why, errno, "config file '%s'", path);
    }
    if (S_ISFIFO(status.st_mode)) { /* a FIFO may never get a writer */
        return sl_fail(why, SL_ERR_CONFIG, "config file '%s' is no plain file", path);
    }
    SL_AUTO(free) char *text = malloc(SL_CONFIG_FILE_BYTES_MAX + 1);
    if (text == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "config file '%s'", path);
    }
    size_t filled = 0;
    for (ssize_t got = 1; got != 0; filled += got > 0 ? (size_t)got : 0) {
        got = read(fd, text + filled, SL_CONFIG_FILE_BYTES_MAX + 1 - filled);
        if (got < 0 && errno != EINTR) {
            return sl_fail_os(why, errno, "read config file '%s'", path);
        }
    }
    if (filled > SL_CONFIG_FILE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_CONFIG, "config file '%s' is larger than %zu bytes",
                       sl_config_source_end(path), SL_CONFIG_FILE_BYTES_MAX);
    }
    text[filled] = '\0';
    if (strlen(text) != filled) {
        return sl_fail(why, SL_ERR_CONFIG, "config file '%s' is no text: zero byte at offset %zu",
                       sl_config_source_end(path), strlen(text));
    }
    *out = SL_TAKE(text);
    return SL_OK;
}

sl_err sl_config_file_load(struct sl_config *config, const char *path, struct sl_error *why)
{
    SL_AUTO(free) char *text = NULL;
    sl_err err = sl_config_file_note(config, path, false, why);
    err = err == SL_OK ? file_read(path, &text, why) : err;
    return text != NULL ? file_scan(config, path, text, why) : err;
}
