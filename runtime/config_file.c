/* runtime/config_file.c - how settings are written: a file of `name = value`, several on a line if
 * wanted, and a value of the environment or the command line.
 *
 * A value is the rest of its line up to a comment or the next `name =`, or a text in single or double
 * quotes; ${VARIABLE} counts at its beginning and in double quotes. Comments are `#` and `//` to the
 * end of the line, at its beginning or behind a blank, and those between slash and asterisk. README.md
 * says why no library reads it. */
#include "runtime/config_file.h"
#include "runtime/sl_address.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLANKS    " \t\r"
#define NAME_ENDS BLANKS "\n=#\"'"

struct scanner {
    const char *path;    /* or what a lone value is named */
    const char *at;      /* zero-terminated */
    const char *line_at; /* where the line begins */
    int line;            /* 0: a lone value, without comments or other settings */
    struct sl_error *why;
};

struct word {
    char text[SL_CONFIG_VALUE_BYTES];
    size_t length;
};

SL_PRINTF(2, 3) static sl_err scan_fail(struct scanner *scan, const char *format, ...)
{
    char text[96], line[SL_CONFIG_VALUE_BYTES], shown[41];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(scan->line_at, "\n"), scan->line_at);
    (void)sl_url_show(line, shown, sizeof shown); /* a password may stand in it */
    const char *source = sl_config_source_end(scan->path);
    return scan->line == 0
               ? sl_fail(scan->why, SL_ERR_CONFIG, "%s: %s in '%s'", source, text, shown)
               : sl_fail(scan->why, SL_ERR_CONFIG, "%s:%d: %s in '%s'", source, scan->line, text,
                         shown);
}

/* ---- between words ---- */

static void line_begin(struct scanner *scan)
{
    scan->at++;
    scan->line++;
    scan->line_at = scan->at;
}

/* The comment at scan->at, which may span lines. */
static sl_err comment_skip(struct scanner *scan)
{
    const char *end = strstr(scan->at + 2, "*/");
    if (end == NULL) {
        return sl_fail(scan->why, SL_ERR_CONFIG, "%s:%d: the comment is never closed",
                       sl_config_source_end(scan->path), scan->line);
    }
    while (scan->at < end + 2) {
        if (*scan->at == '\n') {
            line_begin(scan);
        } else {
            scan->at++;
        }
    }
    return SL_OK;
}

/* A comment begins at scan->at: a `#` within a path is none. */
static bool comment_begins(const struct scanner *scan)
{
    const char *at = scan->at;
    return scan->line != 0 && (at == scan->line_at || strchr(BLANKS, at[-1]) != NULL) &&
           (at[0] == '#' || (at[0] == '/' && (at[1] == '/' || at[1] == '*')));
}

/* Goes to the next word, past the end of the line only if so wanted. */
static sl_err blanks_skip(struct scanner *scan, bool lines)
{
    for (;;) {
        scan->at += strspn(scan->at, BLANKS);
        if (*scan->at == '\n' && lines) {
            line_begin(scan);
        } else if (!comment_begins(scan)) {
            return SL_OK;
        } else if (scan->at[1] == '*') {
            sl_err err = comment_skip(scan);
            if (err != SL_OK) {
                return err;
            }
        } else {
            scan->at += strcspn(scan->at, "\n");
        }
    }
}

static bool at_line_end(const struct scanner *scan)
{
    return *scan->at == '\0' || (*scan->at == '\n' && scan->line != 0);
}

/* Length of the name at text that `=` follows; 0: there is none. */
static size_t name_length(const char *text)
{
    size_t length = strcspn(text, NAME_ENDS);
    return text[length + strspn(text + length, BLANKS)] == '=' ? length : 0;
}

static bool is_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && text[i] != '_' && text[i] != '-') {
            return false;
        }
    }
    return length > 0;
}

/* What stands at scan->at is behind a value: nothing, a comment or the next setting. One that is
 * misspelt is none of the value's, either. */
static bool value_ends(const struct scanner *scan)
{
    return at_line_end(scan) || comment_begins(scan) ||
           (scan->line != 0 && is_name(scan->at, name_length(scan->at)));
}

/* ---- words ---- */

/* One that is too long ends with its last place: word_read says so. */
static void word_put(struct word *word, const char *from, size_t length)
{
    length = SL_MIN(length, SL_CONFIG_VALUE_BYTES - 1 - word->length);
    memcpy(word->text + word->length, from, length);
    word->length += length;
    word->text[word->length] = '\0';
}

/* The digits of an escape sequence as one byte; false: it is none. */
static bool byte_put(struct word *word, const char *from, size_t length, int base)
{
    char digits[4] = "";
    memcpy(digits, from, SL_MIN(length, sizeof digits - 1));
    unsigned long value = strtoul(digits, NULL, base);
    const char byte = (char)value;
    word_put(word, &byte, 1);
    return value >= 1 && value <= UINT8_MAX;
}

/* What follows a backslash inside of double quotes. */
static sl_err escape_read(struct scanner *scan, struct word *word)
{
    static const char letters[] = "abefnrtv", controls[] = "\a\b\033\f\n\r\t\v";
    const char *at = scan->at + 1;
    size_t length = 1;
    bool fine = true;
    if (*at >= '0' && *at <= '9') {
        length = strspn(at, "0123456789");
        fine = length <= 3 && strspn(at, "01234567") >= length && byte_put(word, at, length, 8);
    } else if (*at == 'x' && strspn(at + 1, "0123456789abcdefABCDEF") > 0) {
        length = 1 + SL_MIN(strspn(at + 1, "0123456789abcdefABCDEF"), (size_t)2);
        fine = byte_put(word, at + 1, length - 1, 16);
    } else if (*at != '\0' && *at != '\n') {
        const char *letter = strchr(letters, *at);
        word_put(word, letter != NULL ? &controls[letter - letters] : at, 1);
    } else {
        return scan_fail(scan, "unterminated string constant");
    }
    if (!fine) {
        return scan_fail(scan, "bad escape sequence '\\%.*s'", (int)SL_MIN(length, (size_t)20), at);
    }
    scan->at = at + length;
    return SL_OK;
}

/* ${NAME} or ${NAME:-DEFAULT}, all of it on one line; false: there is none. */
static bool variable_read(struct scanner *scan, struct word *word)
{
    char name[256];
    size_t length = scan->at[0] == '$' && scan->at[1] == '{' ? strcspn(scan->at, "}\n") : 0;
    if (length < 2 || scan->at[length] != '}' || length - 2 >= sizeof name) {
        return false;
    }
    memcpy(name, scan->at + 2, length - 2);
    name[length - 2] = '\0';
    char *otherwise = strchr(name, ':');
    if (otherwise != NULL && otherwise[1] == '-') {
        *otherwise = '\0';
        otherwise += 2;
    } else {
        otherwise = NULL;
    }
    const char *value = getenv(name);
    value = value != NULL ? value : otherwise != NULL ? otherwise : "";
    word_put(word, value, strlen(value));
    scan->at += length + 1;
    return true;
}

static sl_err quoted_read(struct scanner *scan, struct word *word)
{
    const char quote = *scan->at++;
    while (*scan->at != quote) {
        sl_err err = SL_OK;
        if (at_line_end(scan)) {
            return scan_fail(scan, "unterminated string constant");
        }
        if (quote == '"' && *scan->at == '\\') {
            err = escape_read(scan, word);
        } else if (quote == '"' && variable_read(scan, word)) {
            continue;
        } else {
            scan->at += *scan->at == '\\' && (scan->at[1] == quote || scan->at[1] == '\\');
            word_put(word, scan->at++, 1);
        }
        if (err != SL_OK) {
            return err;
        }
    }
    scan->at++;
    return SL_OK;
}

/* A value without quotes: blanks are part of it between its words. */
static void bare_read(struct scanner *scan, struct word *word)
{
    bool begun = variable_read(scan, word);
    const char *from = scan->at, *end = scan->at;
    while (!at_line_end(scan) && !(begun && value_ends(scan))) {
        scan->at += strcspn(scan->at, scan->line != 0 ? BLANKS "\n" : BLANKS);
        end = scan->at;
        scan->at += strspn(scan->at, BLANKS);
        begun = true;
    }
    word_put(word, from, (size_t)(end - from));
}

/* The value at scan->at, which may be empty. */
static sl_err value_read(struct scanner *scan, struct word *word)
{
    word->length = 0;
    word->text[0] = '\0';
    if (at_line_end(scan) || comment_begins(scan)) {
        return SL_OK;
    }
    if (*scan->at == '"' || *scan->at == '\'') {
        sl_err err = quoted_read(scan, word);
        scan->at += err == SL_OK ? strspn(scan->at, BLANKS) : 0;
        if (err == SL_OK && !value_ends(scan)) {
            int shown = (int)SL_MIN(strcspn(scan->at, "\n"), (size_t)20);
            return scan_fail(scan, "'%.*s' stands behind the value's quotes", shown, scan->at);
        }
        if (err != SL_OK) {
            return err;
        }
    } else {
        bare_read(scan, word);
    }
    return word->length < SL_CONFIG_VALUE_BYTES - 1
               ? SL_OK
               : scan_fail(scan, "a value of more than %d bytes", SL_CONFIG_VALUE_BYTES - 2);
}

sl_err sl_config_value_read(const char *text, const char *source, char out[SL_CONFIG_VALUE_BYTES],
                            struct sl_error *why)
{
    struct word value;
    struct scanner scan = {
        .path = source, .at = text + strspn(text, BLANKS), .line_at = text, .why = why};
    sl_err err = value_read(&scan, &value);
    if (err == SL_OK) {
        memcpy(out, value.text, value.length + 1);
    }
    return err;
}

/* ---- settings ---- */

/* One `name = value`. */
static sl_err setting_read(struct scanner *scan, struct sl_config *config)
{
    struct word value;
    char source[SL_CONFIG_SOURCE_BYTES];
    enum sl_setting setting;
    const char *name = scan->at;
    size_t length = SL_MAX(strcspn(name, NAME_ENDS), (size_t)1);
    if (!sl_setting_find(name, length, &setting)) {
        (void)snprintf(source, sizeof source, "%s:%d", scan->path, scan->line);
        return sl_setting_refuse(name, length, source, "setting", scan->why);
    }
    scan->at += length;
    sl_err err = blanks_skip(scan, false);
    if (err == SL_OK && *scan->at != '=') {
        return scan_fail(scan, "missing equal sign after option '%.*s'", (int)length, name);
    }
    if (err == SL_OK) {
        scan->at++;
        err = blanks_skip(scan, false);
    }
    (void)snprintf(source, sizeof source, "%s:%d", scan->path, scan->line);
    err = err == SL_OK ? value_read(scan, &value) : err;
    err = err == SL_OK ? sl_config_assign(config, setting, value.text, source, scan->why) : err;
    char shown[8];
    return err == SL_OK && sl_url_show(value.text, shown, sizeof(shown))
               ? sl_config_file_note(config, scan->path, true, scan->why)
               : err;
}

static sl_err file_scan(struct sl_config *config, const char *path, const char *text,
                        struct sl_error *why)
{
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* the mark of UTF-8 */
    struct scanner scan = {.path = path, .at = text, .line_at = text, .line = 1, .why = why};
    sl_err err = blanks_skip(&scan, true);
    while (err == SL_OK && *scan.at != '\0') {
        err = setting_read(&scan, config);
        err = err == SL_OK ? blanks_skip(&scan, true) : err;
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
    if (S_ISFIFO(status.st_mode)) { /* it may have no writer, ever */
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
