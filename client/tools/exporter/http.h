/* client/tools/exporter/http.h - a small HTTP server on a process's event loop: GET and HEAD, one
 * request for each connection.
 *
 * It reads only the head of a request, answers and closes the connection, so that a body cannot
 * hide another request. Bounded are: connections (half of them from one address), bytes of a head,
 * time until it is complete, time until the client has read the answer. When connections run out, a
 * new one replaces the oldest whose request is incomplete.
 *
 * Requests that a browser sends for a page of another origin (`Origin`) are refused. */
#ifndef SL_CLIENT_EXPORTER_HTTP_H
#define SL_CLIENT_EXPORTER_HTTP_H

#include "runtime/base/sl_loop.h"

#define HTTP_CONNECTIONS_MAX 256u

struct http_answer {  /* arrives zeroed */
    unsigned status;  /* 0: 200 */
    const char *type; /* NULL: text/plain */
    char *text;       /* owned by the answer (malloc); NULL: no memory */
    size_t length_bytes;
};
struct http_page {
    const char *path;
    void (*fn)(void *context, struct http_answer *answer);
    bool guarded; /* requires the token, if there is one */
};

struct http; /* opaque */
/* Serves on a listening, non-blocking descriptor (taken, also on failure), with
 * HTTP_CONNECTIONS_MAX + 1 descriptors and a timer of the loop. Borrows pages, context and token
 * (`Authorization: Bearer TOKEN`; NULL: none) until the process ends. Errors: SL_ERR_NO_MEMORY,
 * those of the loop. */
sl_err http_open(struct sl_loop *loop, int fd, const struct http_page *pages, uint32_t page_count,
                 const char *token, void *context, struct http **out, struct sl_error *why);
void http_close(struct http **http);

#endif
