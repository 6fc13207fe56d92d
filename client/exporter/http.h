/* client/exporter/http.h - a small HTTP/1.1 server: paths, decoded arguments, texts or
 * streams as answers. It reads requests strictly (http_head.h), and closes the connection of one that
 * it refuses. Path, method and token are looked at before a body is read.
 *
 * A thread a connection, so that who waits for the node or for a slow reader holds up nobody else.
 * All is bounded: connections (MC_HTTP_CONNECTIONS_MAX, half of them from one address), bytes of a
 * request's head, bytes of a body and of all bodies, time without a byte, time of a whole request
 * (mc_http_tend).
 * Where connections run out, the oldest whose request is not whole gives way to the next. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_HTTP_H
#define SL_CLIENT_MOONCAKE_DAEMONS_HTTP_H

#include "runtime/sl_error.h"

#include <sys/types.h>

#define MC_HTTP_CONNECTIONS_MAX 256u
#define MC_HTTP_BODY_BYTES_MAX  (4 * SL_MIB)  /* a segment of many buffers has some 100 KiB */
#define MC_HTTP_BODIES_BYTES    (64 * SL_MIB) /* memory of all bodies that are being read or used */
#define MC_HTTP_BODIES_OF_ONE   (16 * SL_MIB) /* of those from one address */

enum mc_method { /* HEAD comes as GET; what it answers is not sent */
                 MC_GET = 1,
                 MC_POST = 2,
                 MC_PUT = 4,
                 MC_DELETE = 8,
};

struct mc_request; /* opaque; borrowed by a handler */
enum mc_method mc_request_method(const struct mc_request *request);
/* The body of a PUT, at most MC_HTTP_BODY_BYTES_MAX; those of other methods are dropped as they come. Never
 * NULL. Borrowed. */
const char *mc_request_body(const struct mc_request *request, size_t *length_bytes);
/* As it stands in the URL, with its escapes. NULL: not there. Borrowed. */
const char *mc_request_raw(const struct mc_request *request, const char *name);
/* Decodes length bytes of a URL in place of `+` for a blank and %XX for a byte. Gives the number of
 * bytes; -1: a malformed escape, or a zero byte. out has length + 1 bytes and is ended by a zero.
 */
ssize_t mc_unescape(const char *text, size_t length, char *out);

/* Bytes that are made while they are sent. */
struct mc_stream {
    /* Fills out with at most room bytes; 0: not enough room for the next thing. -1: the end; -2: it
     * failed (the connection is cut, so that nobody takes a part for the whole). */
    ssize_t (*more)(void *state, char *out, size_t room);
    void (*end)(void *state); /* frees the state; called once, also when nobody reads on */
    void *state;
};
struct mc_answer {    /* arrives zeroed */
    unsigned status;  /* 0: 200 */
    const char *type; /* NULL: text/plain */
    char *text;       /* owned by the answer (malloc); NULL: empty, or a stream */
    size_t length_bytes;
    struct mc_stream stream; /* more is NULL: none */
};
/* Fills answer->text. Without memory for it the answer is 500. */
void mc_answer_text(struct mc_answer *answer, unsigned status, const char *format, ...)
    SL_PRINTF(3, 4);

typedef void (*mc_route_fn)(void *context, const struct mc_request *request,
                            struct mc_answer *answer); /* many threads at a time */
struct mc_route {
    const char *path;
    unsigned methods; /* enum mc_method, or'ed */
    mc_route_fn fn;
    unsigned guarded; /* those of them that change or end things (struct mc_http_guard) */
};
/* Who may do what changes things. With a token: requests that have `Authorization: Bearer TOKEN`,
 * over the loopback too. Without one: requests over the loopback, or with open_without_token all. A
 * request that a browser makes for a page of another place (`Origin`) is refused wherever it comes,
 * unless that origin is allowed. */
struct mc_http_guard {
    const char *token; /* NULL: none. Borrowed for good */
    const char
        *origins; /* allowed ones, separated by commas; NULL or "": none. Borrowed for good */
    bool open_without_token;
};

struct mc_http; /* opaque */
/* Serves on a listening descriptor (taken, also on failure). routes are borrowed for good; what
 * none of them has is 404, a PUT without the length of its body 411. Errors: SL_ERR_OS,
 * SL_ERR_NO_MEMORY. */
sl_err mc_http_start(int fd, const struct mc_route *routes, uint32_t route_count,
                     const struct mc_http_guard *guard, void *context, struct mc_http **out,
                     struct sl_error *why);
/* Cuts connections whose request takes longer than it may; to be called about once a second. */
void mc_http_tend(struct mc_http *http, uint64_t now_ns);
/* Waits for handlers that run; connections are cut. */
void mc_http_stop(struct mc_http **http);

#endif
