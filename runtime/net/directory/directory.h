/* runtime/net/directory/directory.h - which nodes exist and which of them hold a key: hints that
 * nodes share. A wrong hint costs a miss, and never gives wrong bytes.
 *
 * There are two back ends: `embedded` (no other nodes) and `redis` (a Redis or Valkey server that
 * all nodes of the cluster use). Layout in Redis, under sluice:CLUSTER:
 *
 *   nodes   set of node names
 *   n:NODE  "1 INCARNATION CONTROL FABRIC", expires after node_ttl unless renewed
 *   t:NODE  record of another node with that name, which was refused; expires likewise
 *   k:ID    hash of a key's holders: node -> incarnation; expires after key_ttl likewise
 *
 * It is a hash, so that a restarted node replaces its former entry. A holder counts only while its
 * node has a record with the same incarnation. Nothing waits for the server: while it is
 * unreachable, lookups fail at once, and a missing reply ends the connection. Every byte from it
 * is bounded and checked.
 *
 * One thread. Only sl_directory_step calls back, and sl_directory_leave if its send fails.
 * Callbacks may call all but these and close. */
#ifndef SL_DIRECTORY_DIRECTORY_H
#define SL_DIRECTORY_DIRECTORY_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_error.h"

#define SL_DIRECTORY_NAME_BYTES    64u /* of a node or cluster: 1..63 of [A-Za-z0-9._-] */
#define SL_DIRECTORY_ADDRESS_BYTES 128u
#define SL_DIRECTORY_MEMBERS_MAX   1024u
#define SL_DIRECTORY_HOLDERS_MAX   8u    /* returned for one key */
#define SL_DIRECTORY_KEYS_MAX      1024u /* in one lookup */
#define SL_DIRECTORY_LOOKUPS_MAX   32u   /* at a time */
#define SL_DIRECTORY_QUEUE_MAX     4096u /* queued publications and withdrawals */

struct sl_directory; /* opaque */

/* Addresses are printable ASCII without spaces, or "": none. The control plane interprets them. */
struct sl_directory_member {
    char name[SL_DIRECTORY_NAME_BYTES];
    uint64_t incarnation; /* 1..; grows with each life of a node's contents */
    char control[SL_DIRECTORY_ADDRESS_BYTES];
    char fabric[SL_DIRECTORY_ADDRESS_BYTES];
};

/* The other nodes that may hold a key; borrowed during the call. */
struct sl_directory_found {
    const struct sl_directory_member *holders[SL_DIRECTORY_HOLDERS_MAX];
    uint32_t holder_count;
};

struct sl_directory_events {
    void *context;
    /* Result of a lookup. SL_OK: one entry for each key. Else found is NULL: SL_ERR_TIMEOUT (its
     * deadline), SL_ERR_UNREACHABLE (the connection was lost). */
    void (*found)(void *context, uint64_t cookie, sl_err code,
                  const struct sl_directory_found *found, uint32_t count);
    /* Another node joined, left, or changed its addresses. */
    void (*members)(void *context);
    /* up: the server answers, but may have lost what this node published: publish everything again.
     * Not up: the connection was lost, for the reason in why. Not repeated while attempts fail in
     * the same way. */
    void (*link)(void *context, bool up, const struct sl_error *why);
};

enum sl_directory_kind { SL_DIRECTORY_EMBEDDED, SL_DIRECTORY_REDIS };

struct sl_directory_options {
    enum sl_directory_kind kind;
    const char *url;      /* redis://[USER:PASSWORD@]IP:PORT[/DB], unix:///PATH[?db=DB]; copied */
    const char *password; /* overrides the one in url; NULL or "": none. Copied */
    const char *cluster;  /* name; copied */
    uint64_t node_ttl_ns; /* a record is renewed after a third */
    uint64_t key_ttl_ns;
    uint64_t timeout_ns; /* limit for each reply: then the connection is closed */
    uint64_t backoff_min_ns, backoff_max_ns;
    uint64_t seed; /* for the jitter */
    struct sl_directory_events events;
};
/* Sets the kind embedded, and values that suit most clusters. */
void sl_directory_options_init(struct sl_directory_options *options);

/* Connects in the first step. Errors: SL_ERR_CONFIG (url, cluster, bounds), SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err sl_directory_open(const struct sl_directory_options *options, struct sl_directory **out,
                         struct sl_error *why);
/* Pending lookups end without a callback. */
void sl_directory_close(struct sl_directory **directory);
/* Readable when step has work; -1: embedded. Borrowed. */
int sl_directory_fd(const struct sl_directory *directory);
void sl_directory_step(struct sl_directory *directory, uint64_t now_ns);
/* Latest time of the next step; 0: at once. */
uint64_t sl_directory_wake_at(const struct sl_directory *directory);

/* Whether the server answers; embedded: true. */
bool sl_directory_up(const struct sl_directory *directory);

/* ---- this node ---- */
/* Sets this node's record, copied, and sends it from now on. Errors: SL_ERR_INVALID (names the
 * field). */
sl_err sl_directory_announce(struct sl_directory *directory,
                             const struct sl_directory_member *member, struct sl_error *why);
/* held: does not send or renew the record for now, unless the server still has it. Peers ask a
 * known node without a record for any key, and one with a record only for its published keys. */
void sl_directory_hold(struct sl_directory *directory, bool held);
/* Whether announce would accept it. Errors: SL_ERR_INVALID. */
sl_err sl_directory_member_check(const struct sl_directory_member *member, struct sl_error *why);
/* Removes the record at an orderly end of the node, without guarantee. */
void sl_directory_leave(struct sl_directory *directory);
/* Publishes that this node holds the key with this id (XXH3-64 of the key), or withdraws it. False:
 * not accepted: no server, SL_DIRECTORY_QUEUE_MAX are queued, nothing was announced, or our record
 * was refused. */
bool sl_directory_publish(struct sl_directory *directory, uint64_t id, bool there);
/* Describes another node with our name, with both addresses; "": none. The second node has no
 * record and publishes no keys until that of the first has expired. */
const char *sl_directory_twin(const struct sl_directory *directory);
/* Time to live of keys that are published from now on. */
void sl_directory_key_ttl(struct sl_directory *directory, uint64_t key_ttl_ns);

/* ---- other nodes ---- */
struct sl_directory_lookup {
    const uint64_t *ids; /* XXH3-64 of the keys; copied */
    uint32_t count;      /* 1..SL_DIRECTORY_KEYS_MAX */
    uint64_t now_ns, deadline_ns;
    uint64_t cookie; /* passed to found() */
};
/* Starts a lookup; found() is called only if this returns SL_OK. Errors: SL_ERR_NOT_FOUND (no
 * other node is known), SL_ERR_UNREACHABLE (no server, or its nodes are not known yet),
 * SL_ERR_LIMIT (too many at a time), SL_ERR_INVALID (count). */
sl_err sl_directory_lookup(struct sl_directory *directory,
                           const struct sl_directory_lookup *lookup);
/* Lists the other nodes with a live record, at most a third of node_ttl old; while the server is
 * unreachable, the last known ones. Borrowed until the next step. */
uint32_t sl_directory_members(const struct sl_directory *directory,
                              const struct sl_directory_member **out);

struct sl_directory_stats {
    bool up;
    uint64_t links_lost;
    uint64_t published, withdrawn;            /* confirmed by the server */
    uint64_t refused;                         /* commands answered with an error */
    uint64_t accepted, publications_answered; /* accepted here; answered, in order */
    uint64_t publications_lost; /* queued or unanswered when the connection was lost */
    uint64_t lookups, lookup_timeouts;
    uint64_t bad_replies;   /* connections closed because of invalid replies */
    uint64_t stale_holders; /* without a live record, or of an earlier incarnation */
    uint32_t waiting;       /* publications and withdrawals */
};
void sl_directory_stats(const struct sl_directory *directory, struct sl_directory_stats *out);

#endif
