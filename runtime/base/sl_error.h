/* runtime/base/sl_error.h - the table of error codes, and the text that accompanies a code.
 *
 * Code branches on codes and classes; people read texts. Codes are wire and API values: numbers are
 * never reused. */
#ifndef SL_ERROR_H
#define SL_ERROR_H

#include "runtime/base/sl_base.h"

/* The right reaction to an error of the class. */
enum sl_error_class {
    SL_CLASS_NONE,    /* not an error */
    SL_CLASS_ANSWER,  /* a normal negative answer (not found, exists) */
    SL_CLASS_RETRY,   /* the same call may work later */
    SL_CLASS_PEER,    /* drop the peer or reconnect */
    SL_CLASS_DATA,    /* drop the data: it cannot be trusted */
    SL_CLASS_CALL,    /* fix the call or the configuration */
    SL_CLASS_RESTART, /* the process must restart: fatal to an actor */
};

/* X(name, number, class, text) */
#define SL_ERROR_TABLE(X)                                                            \
    X(SL_OK, 0, SL_CLASS_NONE, "ok")                                                 \
    X(SL_ERR_NOT_FOUND, 1, SL_CLASS_ANSWER, "not found")                             \
    X(SL_ERR_EXISTS, 2, SL_CLASS_ANSWER, "exists already")                           \
    X(SL_ERR_BUSY, 3, SL_CLASS_RETRY, "busy")                                        \
    X(SL_ERR_LIMIT, 4, SL_CLASS_RETRY, "a limit is reached")                         \
    X(SL_ERR_TIMEOUT, 5, SL_CLASS_RETRY, "deadline passed")                          \
    X(SL_ERR_NO_SPACE, 6, SL_CLASS_RETRY, "no space")                                \
    X(SL_ERR_NO_MEMORY, 7, SL_CLASS_RETRY, "out of memory")                          \
    X(SL_ERR_UNREACHABLE, 8, SL_CLASS_RETRY, "peer not reachable")                   \
    X(SL_ERR_CANCELLED, 9, SL_CLASS_ANSWER, "cancelled")                             \
    X(SL_ERR_STALE, 10, SL_CLASS_DATA, "stale generation")                           \
    X(SL_ERR_PEER_DIED, 11, SL_CLASS_PEER, "peer died")                              \
    X(SL_ERR_PROTOCOL, 12, SL_CLASS_PEER, "malformed message")                       \
    X(SL_ERR_VERSION, 13, SL_CLASS_PEER, "version not understood")                   \
    X(SL_ERR_PERMISSION, 14, SL_CLASS_CALL, "not permitted")                         \
    X(SL_ERR_INVALID, 15, SL_CLASS_CALL, "invalid argument")                         \
    X(SL_ERR_UNSUPPORTED, 16, SL_CLASS_CALL, "not supported")                        \
    X(SL_ERR_CONFIG, 17, SL_CLASS_CALL, "invalid configuration")                     \
    X(SL_ERR_CORRUPT, 18, SL_CLASS_DATA, "data does not match its digest or format") \
    X(SL_ERR_FOREIGN, 19, SL_CLASS_CALL, "belongs to another user, boot or format")  \
    X(SL_ERR_IO, 20, SL_CLASS_RETRY, "input/output error")                           \
    X(SL_ERR_OS, 21, SL_CLASS_RETRY, "system call failed")                           \
    X(SL_ERR_DEVICE, 22, SL_CLASS_RESTART, "device error")                           \
    X(SL_ERR_DRAINING, 23, SL_CLASS_RETRY, "shutting down")                          \
    X(SL_ERR_INCOMPLETE, 24, SL_CLASS_ANSWER, "only partly done")                    \
    X(SL_ERR_INTERNAL, 25, SL_CLASS_RESTART, "internal error")                       \
    X(SL_ERR_HANDOVER, 26, SL_CLASS_RETRY, "hand-over incomplete: answer 502")       \
    X(SL_ERR_LEASED, 27, SL_CLASS_RETRY, "leased to a reader")                       \
    X(SL_ERR_LEASE_OVER, 28, SL_CLASS_RETRY, "the lease ended before the work did")  \
    X(SL_ERR_DISK_AWAY, 29, SL_CLASS_RETRY, "a disk is unavailable")

#define SL_ERROR_ENUM(name, number, class, text) name = (number),
typedef enum sl_err { SL_ERROR_TABLE(SL_ERROR_ENUM) SL_ERR_COUNT } sl_err;

#define SL_ERROR_TEXT_BYTES 240

/* Filled where the failure is first known and passed on unchanged. May be NULL everywhere. */
struct sl_error {
    sl_err code;
    int os_code;                    /* errno, or the code of CUDA or verbs; 0 is none */
    char text[SL_ERROR_TEXT_BYTES]; /* zero-terminated, lower case, with values and units */
};

#ifdef __cplusplus
extern "C" {
#endif

const char *sl_err_name(sl_err code); /* "SL_ERR_BUSY"; "SL_ERR_?" for a foreign number */
const char *sl_err_text(sl_err code);
enum sl_error_class sl_err_class(sl_err code);
/* A code from a message; an unknown one becomes SL_ERR_PROTOCOL. */
static inline sl_err sl_err_received(uint64_t code)
{
    return code < SL_ERR_COUNT ? (sl_err)code : SL_ERR_PROTOCOL;
}

/* Fills why (may be NULL) and returns code. */
sl_err sl_fail(struct sl_error *why, sl_err code, const char *format, ...) SL_PRINTF(3, 4);
/* The same for a failed system call: os_code is the errno read right after it, and strerror is
 * appended to the text. ENOMEM, ENOSPC/EDQUOT, EACCES/EPERM, ENOENT, EEXIST, EIO and EFBIG have
 * their own codes; all others are SL_ERR_OS. */
sl_err sl_fail_os(struct sl_error *why, int os_code, const char *format, ...) SL_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
