/* runtime/config_file.c - the syntax of a settings file: `name = value`, several on a line if
 * wanted.
 *
 * A value is a word, a text in single or double quotes, or ${VARIABLE}. Comments are `#` and `//`
 * to the end of the line, and those between slash and asterisk. README.md says why no library reads
 * it. */
#include "runtime/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Far above any real file: what is larger was named by mistake (a disk image, /dev/zero). */
#define FILE_BYTES_MAX (1024 * 1024)
#define WORD_BYTES     4096 /* above the longest setting: its own error says that one is too long */
#define BLANKS         " \t\r"
#define SIGNS          "={}(),"              /* words of their own */
#define WORD_ENDS      " \t\r\n#\"'+*" SIGNS /* `/` is not among them: paths, redis:// */

struct scanner {
    const char *path;
    const char *at;      /* zero-terminated */
    const char *line_at; /* where the line begins */
    int line;
    struct sl_error *why;
};

struct word {
    char text[WORD_BYTES];
    size_t length;
};

SL_PRINTF(2, 3) static sl_err scan_fail(struct scanner *scan, const char *format, ...)
{
    char text[96];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int shown = (int)SL_MIN(strcspn(scan->line_at, "\n"), (size_t)40);
    return sl_fail(scan->why, SL_ERR_CONFIG, "%s:%d: %s in '%.*s'",
                   sl_config_source_end(scan->path), scan->line, text, shown, scan->line_at);
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

/* Signs that mean nothing: files with them were always read. */
static bool is_stray(const char *at)
{
    return (at[0] == '+' && at[1] != '=') ||
           (at[0] == '*' && (at[1] == '\0' || strchr(WORD_ENDS, at[1]) != NULL));
}

/* Goes to the next word, past the end of the line only if so wanted. */
static sl_err blanks_skip(struct scanner *scan, bool lines)
{
    sl_err err = SL_OK;
    for (;;) {
        scan->at += strspn(scan->at, BLANKS);
        const char *at = scan->at;
        if (at[0] == '#' || (at[0] == '/' && at[1] == '/')) {
            scan->at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            err = comment_skip(scan);
        } else if (at[0] == '\n' && lines) {
            line_begin(scan);
        } else if (is_stray(at)) {
            scan->at++;
        } else {
            return SL_OK;
        }
        if (err != SL_OK) {
            return err;
        }
    }
}

static bool at_line_end(const struct scanner *scan)
{
    return *scan->at == '\n' || *scan->at == '\0';
}

/* ---- words ---- */

/* One that is too long ends with its last place: word_read says so. */
static void word_put(struct word *word, const char *from, size_t length)
{
    length = SL_MIN(length, WORD_BYTES - 1 - word->length);
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

/* The word at scan->at, which is neither blank nor the end of the line. */
static sl_err word_read(struct scanner *scan, struct word *word)
{
    sl_err err = SL_OK;
    word->length = 0;
    word->text[0] = '\0';
    if (*scan->at == '+' || strchr(SIGNS, *scan->at) != NULL) {
        return scan_fail(scan, "unexpected token '%s%c'", *scan->at == '+' ? "+" : "",
                         *scan->at == '+' ? '=' : *scan->at);
    }
    if (*scan->at == '"' || *scan->at == '\'') {
        err = quoted_read(scan, word);
    } else if (!variable_read(scan, word)) {
        size_t length = 1 + strcspn(scan->at + 1, WORD_ENDS);
        word_put(word, scan->at, length);
        scan->at += length;
    }
    if (err == SL_OK && word->length == WORD_BYTES - 1) {
        return scan_fail(scan, "a word of more than %d bytes", WORD_BYTES - 2);
    }
    return err;
}

/* ---- settings ---- */

/* One `name = value`. */
static sl_err setting_read(struct scanner *scan, struct sl_config *config)
{
    struct word name, value;
    char source[SL_CONFIG_SOURCE_BYTES];
    enum sl_setting setting;
    sl_err err = word_read(scan, &name);
    if (err == SL_OK && !sl_setting_find(name.text, name.length, &setting)) {
        return scan_fail(scan, "no such option '%s'", name.text);
    }
    err = err == SL_OK ? blanks_skip(scan, false) : err;
    if (err == SL_OK && *scan->at != '=') {
        return scan_fail(scan, "missing equal sign after option '%s'", name.text);
    }
    if (err == SL_OK) {
        scan->at++;
        err = blanks_skip(scan, false);
    }
    if (err == SL_OK && at_line_end(scan)) {
        return scan_fail(scan, "missing value of option '%s'", name.text);
    }
    err = err == SL_OK ? word_read(scan, &value) : err;
    (void)snprintf(source, sizeof source, "%s:%d", scan->path, scan->line);
    return err == SL_OK ? sl_config_set(config, name.text, value.text, source, scan->why) : err;
}

static sl_err file_scan(struct sl_config *config, const char *path, const char *text,
                        struct sl_error *why)
{
    struct scanner scan = {.path = path, .at = text, .line_at = text, .line = 1, .why = why};
    sl_err err = blanks_skip(&scan, true);
    while (err == SL_OK && *scan.at != '\0') {
        err = setting_read(&scan, config);
        err = err == SL_OK ? blanks_skip(&scan, true) : err;
    }
    return err;
}

/* ---- the file ---- */

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
                       sl_config_source_end(path), FILE_BYTES_MAX);
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
    sl_err err = file_read(path, &text, why);
    return text != NULL ? file_scan(config, path, text, why) : err;
}
