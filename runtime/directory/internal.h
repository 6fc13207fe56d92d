/* runtime/directory/internal.h - what the files of the redis back end ask of each other.
 *
 * link.c keeps one connection: a bounded buffer out, a ring of commands that wait for
 * their reply, and the reply that is coming in. directory.c knows what the commands mean. Of
 * hiredis the parser alone is used: its asynchronous context resolves names while it blocks, has
 * no deadlines and buffers without a bound. */
#ifndef SL_DIRECTORY_INTERNAL_H
#define SL_DIRECTORY_INTERNAL_H

#include "runtime/directory/directory.h"

#include <hiredis/hiredis.h>
#include <sys/socket.h>

/* ---- where the server is (url.c) ---- */
#define DIRECTORY_SECRET_BYTES 256u
struct directory_place {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    char about[160]; /* for people: no secrets */
    char user[DIRECTORY_SECRET_BYTES], password[DIRECTORY_SECRET_BYTES];
    uint32_t database;
};
/* Errors: SL_ERR_CONFIG; the text never holds a password. */
sl_err directory_place_from(const char *url, struct directory_place *out, struct sl_error *why);
bool directory_name_good(const char *text, size_t length); /* of nodes and clusters */
bool directory_address_good(const char *text, size_t length);

/* ---- the connection (link.c) ---- */
#define LINK_OUT_BYTES    SL_MIB
#define LINK_WAITING_MAX  65536u        /* commands without a reply; a power of two */
#define LINK_ELEMENTS_MAX (1 << 16)     /* a longer array ends the connection */
#define LINK_READ_BYTES   16384u        /* at a time */
#define LINK_UNREAD_MAX   (64u * 1024u) /* a line or text longer than this likewise */
#define LINK_TURN_READS   64u           /* then others get their turn */

enum link_phase { LINK_DOWN, LINK_CONNECTING, LINK_GREETING, LINK_UP };

struct link_waiting {
    uint64_t deadline_ns;
    uint32_t what, arg; /* the owner's */
};

struct directory_link {
    /* set by the owner */
    struct directory_place place;
    uint64_t timeout_ns, backoff_min_ns, backoff_max_ns;
    uint64_t random; /* state, not 0 */
    void *context;
    /* A command's reply. False: nonsense; the connection ends. */
    bool (*replied)(void *context, uint32_t what, uint32_t arg, const redisReply *reply);
    void (*lost)(void *context, bool was_up, const struct sl_error *why);
    void (*up)(void *context);

    enum link_phase phase;
    int epoll, fd;
    bool writing; /* the socket is asked to say when it takes more */
    bool more;    /* there may be more to read */
    uint64_t now_ns;
    uint64_t retry_ns;
    uint32_t failures;          /* since it last stood */
    uint64_t phase_deadline_ns; /* of connecting */
    uint32_t greetings;         /* replies the greeting waits for */
    redisReader *reader;
    redisReplyObjectFunctions functions; /* of the library, but for arrays */
    void *(*array_make)(const redisReadTask *task, int elements);
    char *out;
    uint32_t out_at, out_end;
    struct link_waiting *waiting; /* a ring */
    uint32_t waiting_head, waiting_count;
    uint64_t bad_replies, lost_count;
};
/* place .. up are set before. */
sl_err link_init(struct directory_link *link, struct sl_error *why);
void link_fini(struct directory_link *link);
void link_step(struct directory_link *link, uint64_t now_ns);
uint64_t link_wake_at(const struct directory_link *link);
/* Room for so many commands of so many bytes. */
bool link_has_room(const struct directory_link *link, uint32_t commands, uint64_t bytes);
/* Appends one command of these words, behind which stands NULL; the caller asked for room. */
void link_send(struct directory_link *link, const char *const *words, uint32_t what, uint32_t arg);
#define LINK_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* Whether it is an array of texts, and of what is not there. */
bool link_is_list(const redisReply *reply);
/* Sends what was appended, as far as the socket takes it. */
void link_flush(struct directory_link *link);
/* The connection ends; it is tried again later. */
void link_fail(struct directory_link *link, sl_err code, const char *format, ...) SL_PRINTF(3, 4);

#endif
