/* client/tools/exporter/http_head.h - strict parser for the head of an HTTP/1.1 request. It refuses
 * heads that two servers could read in different ways. */
#ifndef SL_CLIENT_EXPORTER_HTTP_HEAD_H
#define SL_CLIENT_EXPORTER_HTTP_HEAD_H

#include "runtime/base/sl_base.h"

#include <sys/types.h>

#define HTTP_HEAD_BYTES_MAX (16 * SL_KIB)

struct http_head {             /* pointers into the parsed bytes; NULL: no such line */
    const char *method, *path; /* without the query after a question mark */
    const char *host, *authorization, *origin;
};
/* Length of the head with its blank line in bytes; 0: incomplete; -1: a line does not end with CR
 * LF or has control characters. */
ssize_t http_head_bytes(const char *text, size_t length);
/* Parses a complete head and writes NULs into it. Gives NULL, or an error text. */
const char *http_head_parse(char *text, size_t length, struct http_head *out);

#endif
