/* client/tools/exporter/http.h - pages by HTTP, on the loop of a process: GET and HEAD, a request a
 * connection.
 *
 * A request is answered by its head alone, and its connection ends with the answer: no body is
 * read, so that none can hide another request. All is bounded: connections (half of them from one
 * address), bytes of a head, time until it is whole, time until the answer was taken. Where
 * connections run out, the oldest whose request is not whole gives way to the next.
 *
 * A request that a browser makes for a page of another place (`Origin`) is refused. */
#ifndef SL_CLIENT_EXPORTER_HTTP_H
#define SL_CLIENT_EXPORTER_HTTP_H

#include "runtime/base/sl_loop.h"

#define HTTP_CONNECTIONS_MAX 256u

struct http_answer {  /* arrives zeroed */
    unsigned status;  /* 0: 200 */
    const char *type; /* NULL: text/plain */
    char *text;       /* owned by the answer (malloc); NULL: no memory for it */
    size_t length_bytes;
};
struct http_page {
    const char *path;
    void (*fn)(void *context, struct http_answer *answer);
    bool guarded; /* it wants the token, where there is one */
};

struct http; /* opaque */
/* Serves on a listening, non-blocking descriptor (taken, also on failure), with
 * HTTP_CONNECTIONS_MAX + 1 descriptors and a timer of the loop. Pages, context and token
 * (`Authorization: Bearer TOKEN`; NULL: none) are borrowed for good. Errors: SL_ERR_NO_MEMORY,
 * those of the loop. */
sl_err http_open(struct sl_loop *loop, int fd, const struct http_page *pages, uint32_t page_count,
                 const char *token, void *context, struct http **out, struct sl_error *why);
void http_close(struct http **http);

#endif
