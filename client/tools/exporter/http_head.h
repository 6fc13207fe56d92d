/* client/tools/exporter/http_head.h - the head of an HTTP/1.1 request, read strictly: one that two
 * servers could read in two ways is refused. */
#ifndef SL_CLIENT_EXPORTER_HTTP_HEAD_H
#define SL_CLIENT_EXPORTER_HTTP_HEAD_H

#include "runtime/base/sl_base.h"

#include <sys/types.h>

#define HTTP_HEAD_BYTES_MAX (16 * SL_KIB)

struct http_head { /* texts lie in the bytes that were parsed; NULL: there is no such line */
    const char *method, *path; /* without what is behind a question mark */
    const char *host, *authorization, *origin;
};
/* Bytes of the head with its blank line; 0: it is not whole yet; -1: a line ends in another way
 * than by CR LF, or has control characters. */
ssize_t http_head_bytes(const char *text, size_t length);
/* Parses a head that is whole, and writes zeros into it. Gives NULL, or what is wrong. */
const char *http_head_parse(char *text, size_t length, struct http_head *out);

#endif
