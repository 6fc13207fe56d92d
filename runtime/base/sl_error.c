/* runtime/base/sl_error.c - names, texts and classes of error codes, and filling an error. */
#include "runtime/base/sl_error.h"
#include "runtime/base/sl_text.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct error_row {
    const char *name;
    const char *text;
    enum sl_error_class class;
};

#define ERROR_ROW(row_name, number, row_class, row_text) \
    [number] = {.name = #row_name, .text = (row_text), .class = (row_class)},
static const struct error_row error_rows[] = {SL_ERROR_TABLE(ERROR_ROW)};
static_assert(SL_COUNT(error_rows) == SL_ERR_COUNT, "numbers of errors have no gaps");

/* NULL for an unknown number: codes also arrive from other processes. */
static const struct error_row *error_row_of(sl_err code)
{
    return (unsigned)code < SL_COUNT(error_rows) ? &error_rows[(unsigned)code] : NULL;
}

const char *sl_err_name(sl_err code)
{
    const struct error_row *row = error_row_of(code);
    return row == NULL ? "SL_ERR_?" : row->name;
}

const char *sl_err_text(sl_err code)
{
    const struct error_row *row = error_row_of(code);
    return row == NULL ? "unknown error" : row->text;
}

enum sl_error_class sl_err_class(sl_err code)
{
    const struct error_row *row = error_row_of(code);
    return row == NULL ? SL_CLASS_PEER : row->class; /* an unknown number came from a peer */
}

/* Formats into a copy: an argument may be the very text that is replaced. */
static void error_fill(struct sl_error *why, sl_err code, int os_code, const char *format,
                       va_list arguments) SL_PRINTF(4, 0);
static void error_fill(struct sl_error *why, sl_err code, int os_code, const char *format,
                       va_list arguments)
{
    char text[SL_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof(text), format, arguments);
    sl_text_clean(text); /* it may have names and bytes from outside, and terminals show it */
    why->code = code;
    why->os_code = os_code;
    memcpy(why->text, text, sizeof(text));
}

sl_err sl_fail(struct sl_error *why, sl_err code, const char *format, ...)
{
    if (why != NULL) {
        va_list arguments;
        va_start(arguments, format);
        error_fill(why, code, 0, format, arguments);
        va_end(arguments);
    }
    return code;
}

static sl_err error_code_of_os(int os_code)
{
    switch (os_code) {
    case ENOMEM:
        return SL_ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return SL_ERR_NO_SPACE;
    case EACCES:
    case EPERM:
        return SL_ERR_PERMISSION;
    case ENOENT:
        return SL_ERR_NOT_FOUND;
    case EEXIST:
        return SL_ERR_EXISTS;
    case EIO:
        return SL_ERR_IO;
    case EFBIG:
        return SL_ERR_LIMIT;
    default:
        return SL_ERR_OS;
    }
}

sl_err sl_fail_os(struct sl_error *why, int os_code, const char *format, ...)
{
    sl_err code = error_code_of_os(os_code);
    if (why != NULL) {
        va_list arguments;
        va_start(arguments, format);
        error_fill(why, code, os_code, format, arguments);
        va_end(arguments);
        char reason[96];
        const char *said = os_code == EFBIG
                               ? "larger than RLIMIT_FSIZE allows (ulimit -f)"
                               : strerror_r(os_code, reason, sizeof(reason)); /* GNU: thread-safe */
        size_t length = strlen(why->text);
        snprintf(why->text + length, sizeof(why->text) - length, ": %s%s", said,
                 os_code == EROFS ? " (a unit of systemd may write where ReadWritePaths= says)"
                                  : "");
    }
    return code;
}
