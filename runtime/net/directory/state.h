/* runtime/net/directory/state.h - the directory's state, shared by its files. */
#ifndef SL_DIRECTORY_STATE_H
#define SL_DIRECTORY_STATE_H

#include "runtime/net/directory/internal.h"

#define PREFIX_BYTES   80u
#define KEY_BYTES      (PREFIX_BYTES + SL_DIRECTORY_NAME_BYTES)
#define COMMAND_BYTES  512u /* an upper bound for commands with one key */
#define RECORD_VERSION "1"
#define RECORD_BYTES   (2 * SL_DIRECTORY_ADDRESS_BYTES + 32)

/* Type of a command, for handling its reply. */
enum {
    WHAT_PUBLISH,
    WHAT_WITHDRAW,
    WHAT_OTHER,  /* integer reply, ignored */
    WHAT_RECORD, /* arg: RECORD_PLAIN, or 0: by the script */
    WHAT_OWN,    /* our record, while it is held */
    WHAT_NOTE,   /* note that our record was refused */
    WHAT_NAMES,
    WHAT_MEMBER, /* arg: index into names */
    WHAT_LOOKUP, /* arg: slot << 16 | key */
};
#define RECORD_PLAIN 1u

struct lookup {
    bool used;
    bool over; /* reported; replies may still arrive */
    uint32_t count, left;
    uint64_t deadline_ns, cookie;
    struct {
        uint64_t id;
        uint16_t count;
        uint16_t members[SL_DIRECTORY_HOLDERS_MAX]; /* index into the table */
    } keys[SL_DIRECTORY_KEYS_MAX];
};

struct member_table {
    struct sl_directory_member at[SL_DIRECTORY_MEMBERS_MAX]; /* sorted by name */
    uint32_t count;
};

struct tell {
    uint64_t id;
    bool there;
};

struct sl_directory {
    enum sl_directory_kind kind;
    struct sl_directory_events events;
    struct sl_directory_stats stats;
    uint64_t node_ttl_ns, key_ttl_ns;
    char prefix[PREFIX_BYTES];

    bool announced;
    struct sl_directory_member self;
    uint64_t record_at_ns; /* last time the server accepted our record; 0: never on this link */
    uint64_t refresh_ns;   /* of the next refresh */
    uint64_t refreshed_ns;
    bool refreshing;     /* names or records were requested */
    bool holder_unknown; /* a lookup found a holder that is not in the table */
    bool flush;          /* a lookup was not sent yet */
    bool informed;       /* the member table was read on this link */
    bool held;           /* our record is not renewed */
    bool own_asked;      /* its presence on the server was queried on this link */
    bool own_known;      /* it is known on this link who owns the record of our name */
    bool recorded;       /* the server has accepted our record at least once */
    bool scriptless;     /* only RECORD_PLAIN worked on this link */
    bool refused;        /* the server has another node's record, since: */
    uint64_t refused_ns;
    char twin[SL_ERROR_TEXT_BYTES]; /* describes another node with our name; "": none */

    struct member_table *members, *next;
    char (*names)[SL_DIRECTORY_NAME_BYTES]; /* whose records were requested */
    uint32_t name_count;

    struct tell *tells; /* ring buffer */
    uint32_t tell_head, tell_count, unconfirmed_count;

    struct lookup *lookups;
    struct sl_directory_found *found; /* scratch */
    sl_err last_failure;
    struct directory_link link;
};

/* ---- directory.c ---- */
/* Both write the Redis key to out and return out. */
const char *directory_key_of(const struct sl_directory *self, char out[KEY_BYTES], const char *kind,
                             const char *name);
const char *directory_key_of_id(const struct sl_directory *self, char out[KEY_BYTES], uint64_t id);

/* ---- members.c ---- */
const struct sl_directory_member *directory_member_find(const struct sl_directory *self,
                                                        const char *name);
/* False: not a valid record. */
bool directory_record_read(const char *name, const struct link_item *item,
                           struct sl_directory_member *out);
bool directory_names_replied(struct sl_directory *self, const struct link_reply *reply);
bool directory_member_replied(struct sl_directory *self, uint32_t at,
                              const struct link_reply *reply);

/* ---- lookups.c ---- */
void directory_lookup_end(struct sl_directory *self, struct lookup *lookup, sl_err code);
void directory_lookups_expire(struct sl_directory *self, uint64_t now_ns);
bool directory_lookup_replied(struct sl_directory *self, uint32_t arg,
                              const struct link_reply *reply);

#endif
