/* runtime/net/directory/internal.h - interfaces between the files of the redis back end.
 *
 * link.c keeps one connection in fixed memory: a bounded output buffer, a ring of commands that
 * wait for replies, and the reply being received. directory.c interprets the replies. Only the
 * parser of hiredis is used: its asynchronous context blocks while it resolves names, has no
 * deadlines, and buffers without a bound. */
#ifndef SL_DIRECTORY_INTERNAL_H
#define SL_DIRECTORY_INTERNAL_H

#include "runtime/net/directory/directory.h"

#include <hiredis/read.h>
#include <sys/socket.h>

/* ---- address of the server (url.c) ---- */
#define DIRECTORY_SECRET_BYTES 256u
struct directory_place {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    char about[160]; /* for messages: without secrets */
    char user[DIRECTORY_SECRET_BYTES], password[DIRECTORY_SECRET_BYTES];
    uint32_t database;
};
/* Errors: SL_ERR_CONFIG; the text never contains a password. */
sl_err directory_place_from(const char *url, struct directory_place *out, struct sl_error *why);
bool directory_name_good(const char *text, size_t length); /* of nodes and clusters */
bool directory_address_good(const char *text, size_t length);

/* ---- the connection (link.c) ---- */
#define LINK_OUT_BYTES    SL_MIB
#define LINK_WAITING_MAX  65536u /* commands without a reply; a power of two */
#define LINK_ITEMS_MAX    (2 * SL_DIRECTORY_MEMBERS_MAX) /* of a reply; more are ignored */
#define LINK_TEXT_BYTES   (512u * 1024u)
#define LINK_ELEMENTS_MAX (1 << 20)     /* a longer array ends the connection */
#define LINK_READ_BYTES   16384u        /* in one read */
#define LINK_UNREAD_MAX   (64u * 1024u) /* a longer line or string ends the connection */
#define LINK_TURN_READS   64u           /* reads in one turn, for fairness */

enum link_phase { LINK_DOWN, LINK_CONNECTING, LINK_GREETING, LINK_UP };

struct link_item {
    const char *text;
    uint32_t length;
    bool nil;
};
/* A complete reply. type: as in hiredis; arrays are flat. */
struct link_reply {
    int type;
    long long integer;
    uint32_t count; /* of items; a string is item 0 */
    bool odd;       /* nested, or an item is not a string */
    struct link_item items[LINK_ITEMS_MAX];
    uint32_t text_bytes;
    char text[LINK_TEXT_BYTES];
};

struct link_waiting {
    uint64_t deadline_ns;
    uint32_t what, arg; /* for the owner */
};

struct directory_link {
    /* set by the owner */
    struct directory_place place;
    uint64_t timeout_ns, backoff_min_ns, backoff_max_ns;
    uint64_t random; /* generator state, not 0 */
    void *context;
    /* Handles a command's reply. False: it is invalid, and the connection ends. */
    bool (*replied)(void *context, uint32_t what, uint32_t arg, const struct link_reply *reply);
    void (*lost)(void *context, bool was_up, const struct sl_error *why);
    void (*up)(void *context);

    enum link_phase phase;
    int epoll, fd;
    bool writing; /* epoll also waits for the socket to be writable */
    bool more;    /* there may be more to read */
    uint64_t now_ns;
    uint64_t retry_ns;
    uint32_t failures;          /* since the last success */
    uint64_t phase_deadline_ns; /* of LINK_CONNECTING */
    uint32_t greetings;         /* replies of the greeting that are missing */
    redisReader *reader;
    redisReplyObjectFunctions functions;
    struct link_reply *reply;
    char *out;
    uint32_t out_at, out_end;
    struct link_waiting *waiting; /* ring buffer */
    uint32_t waiting_head, waiting_count;
    uint64_t bad_replies, lost_count;
};
/* The fields place .. up must be set before. */
sl_err link_init(struct directory_link *link, struct sl_error *why);
void link_fini(struct directory_link *link);
void link_step(struct directory_link *link, uint64_t now_ns);
uint64_t link_wake_at(const struct directory_link *link);
/* Whether this number of commands and bytes can be sent. */
bool link_has_room(const struct directory_link *link, uint32_t commands, uint64_t bytes);
/* Appends one command; words ends with NULL. Requires link_has_room. */
void link_send(struct directory_link *link, const char *const *words, uint32_t what, uint32_t arg);
#define LINK_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* Sends what was appended, as far as the socket accepts it. */
void link_flush(struct directory_link *link);
/* Closes the connection; it is retried later. */
void link_fail(struct directory_link *link, sl_err code, const char *format, ...) SL_PRINTF(3, 4);

#endif
