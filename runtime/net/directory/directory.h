/* runtime/net/directory/directory.h - which nodes there are and which of them hold a key: hints
 * that nodes give each other. A wrong hint costs a miss, never a byte.
 *
 * Two back ends: `embedded` (this node alone: nobody else holds anything) and `redis` (a Redis or
 * Valkey server that all nodes of the cluster know). Layout in Redis, under sluice:CLUSTER: -
 *   nodes      set of node names
 *   n:NODE     "1 INCARNATION CONTROL FABRIC", expires after node_ttl unless its node renews it
 *   t:NODE     the record of another node of that name, which was refused; expires likewise
 *   k:ID       hash of the holders of a key: node -> incarnation; expires after key_ttl likewise
 * A hash and not a set: a node that comes back replaces what its former life wrote. A holder counts
 * only while its node has a record with the same incarnation.
 *
 * Nothing waits for the server: while it is away every look-up is answered at once, and what it
 * does not answer in time ends the connection. Every byte that comes from it is bounded and
 * checked.
 *
 * One thread. Callbacks come from sl_directory_step alone; they may call everything but step and
 * close. */
#ifndef SL_DIRECTORY_DIRECTORY_H
#define SL_DIRECTORY_DIRECTORY_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_error.h"

#define SL_DIRECTORY_NAME_BYTES    64u /* of a node or cluster: 1..63 of [A-Za-z0-9._-] */
#define SL_DIRECTORY_ADDRESS_BYTES 128u
#define SL_DIRECTORY_MEMBERS_MAX   1024u
#define SL_DIRECTORY_HOLDERS_MAX   8u    /* of a key that a look-up gives */
#define SL_DIRECTORY_KEYS_MAX      1024u /* of one look-up */
#define SL_DIRECTORY_LOOKUPS_MAX   32u   /* at a time */
#define SL_DIRECTORY_TELLS_MAX     4096u /* publications and withdrawals that wait */

struct sl_directory; /* opaque */

/* Addresses are printable ASCII without spaces; "": none. What they mean is the control plane's. */
struct sl_directory_member {
    char name[SL_DIRECTORY_NAME_BYTES];
    uint64_t incarnation; /* 1..; grows from life to life of a node's contents */
    char control[SL_DIRECTORY_ADDRESS_BYTES];
    char fabric[SL_DIRECTORY_ADDRESS_BYTES];
};

/* Other nodes that may hold a key; borrowed during the call. */
struct sl_directory_found {
    const struct sl_directory_member *holders[SL_DIRECTORY_HOLDERS_MAX];
    uint32_t holder_count;
};

struct sl_directory_events {
    void *context;
    /* The end of a look-up. SL_OK: one entry for each key. Else found is NULL: SL_ERR_TIMEOUT (its
     * deadline), SL_ERR_UNREACHABLE (the server was lost meanwhile). */
    void (*found)(void *context, uint64_t cookie, sl_err code,
                  const struct sl_directory_found *found, uint32_t count);
    /* Another node came, went, or has other addresses. */
    void (*members)(void *context);
    /* up: the server answers, and may know nothing of this node: publish everything again. Not up:
     * it was lost, why says how; not repeated while attempts go on failing in the same way. */
    void (*link)(void *context, bool up, const struct sl_error *why);
};

enum sl_directory_kind { SL_DIRECTORY_EMBEDDED, SL_DIRECTORY_REDIS };

struct sl_directory_options {
    enum sl_directory_kind kind;
    const char *url;      /* redis://[USER:PASSWORD@]IP:PORT[/DB], unix:///PATH[?db=DB]; copied */
    const char *password; /* stronger than the url's; NULL or "": none. Copied */
    const char *cluster;  /* name; copied */
    uint64_t node_ttl_ns; /* renewed after a third */
    uint64_t key_ttl_ns;
    uint64_t timeout_ns; /* a server that leaves a command unanswered for so long is lost */
    uint64_t backoff_min_ns, backoff_max_ns;
    uint64_t seed; /* of the jitter */
    struct sl_directory_events events;
};
/* Embedded; values that fit most clusters. */
void sl_directory_options_init(struct sl_directory_options *options);

/* Connects with the first step. Errors: SL_ERR_CONFIG (url, cluster, bounds), SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err sl_directory_open(const struct sl_directory_options *options, struct sl_directory **out,
                         struct sl_error *why);
/* Look-ups under way end without a callback. */
void sl_directory_close(struct sl_directory **directory);
/* Readable when step has something to do; -1: embedded. Borrowed. */
int sl_directory_fd(const struct sl_directory *directory);
void sl_directory_step(struct sl_directory *directory, uint64_t now_ns);
/* When step wants to run next at the latest; 0: at once. */
uint64_t sl_directory_wake_at(const struct sl_directory *directory);

/* The server answers; embedded: true. */
bool sl_directory_up(const struct sl_directory *directory);

/* ---- this node ---- */
/* Sets or changes this node's record, copied; told to the server from now on. Errors:
 * SL_ERR_INVALID (names the field). */
sl_err sl_directory_announce(struct sl_directory *directory,
                             const struct sl_directory_member *member, struct sl_error *why);
/* held: the record is not told or renewed for now, unless the server has it still. A node that is
 * known and has no record is asked for everything; one that has a record, for what it told. */
void sl_directory_hold(struct sl_directory *directory, bool held);
/* Whether announce would take it. Errors: SL_ERR_INVALID. */
sl_err sl_directory_member_check(const struct sl_directory_member *member, struct sl_error *why);
/* The record goes, best effort: the node ends in order. */
void sl_directory_leave(struct sl_directory *directory);
/* This node holds the key with this id (XXH3-64 of the key), or no more. The answer:
 * false, nothing was taken: no server now, SL_DIRECTORY_TELLS_MAX wait, or nothing was announced.
 */
bool sl_directory_tell(struct sl_directory *directory, uint64_t id, bool there);
/* Two nodes have our name and know of each other: both addresses; "": it is ours alone. The one
 * that came second has no record, and tells no keys, until that of the first has lapsed. */
const char *sl_directory_twin(const struct sl_directory *directory);
/* Time to live of what is told from now on. */
void sl_directory_key_ttl(struct sl_directory *directory, uint64_t key_ttl_ns);

/* ---- the others ---- */
struct sl_directory_lookup {
    const uint64_t *ids; /* XXH3-64 of the keys; copied */
    uint32_t count;      /* 1..SL_DIRECTORY_KEYS_MAX */
    uint64_t now_ns, deadline_ns;
    uint64_t cookie; /* of found() */
};
/* found() follows if SL_OK is returned, and only then. Errors: SL_ERR_NOT_FOUND (no other node is
 * known), SL_ERR_UNREACHABLE (no server now, or not yet known who is there), SL_ERR_LIMIT (too many
 * at a time), SL_ERR_INVALID (count). */
sl_err sl_directory_lookup(struct sl_directory *directory,
                           const struct sl_directory_lookup *lookup);
/* The other nodes with a live record, as of the last third of node_ttl; while the server is away,
 * as of then. Borrowed until the next step. */
uint32_t sl_directory_members(const struct sl_directory *directory,
                              const struct sl_directory_member **out);

struct sl_directory_stats {
    bool up;
    uint64_t links_lost;
    uint64_t published, withdrawn; /* answered by the server */
    uint64_t refused;              /* commands it answered with an error */
    uint64_t told, told_answered;  /* publications and withdrawals taken; answered, in this order */
    uint64_t tells_lost;           /* queued or unanswered when the server was lost */
    uint64_t lookups, lookup_timeouts;
    uint64_t bad_replies;   /* connections ended for what came */
    uint64_t stale_holders; /* without a live record, or of a former life */
    uint32_t waiting;       /* publications and withdrawals */
};
void sl_directory_stats(const struct sl_directory *directory, struct sl_directory_stats *out);

#endif
