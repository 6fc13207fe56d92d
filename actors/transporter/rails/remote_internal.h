/* actors/transporter/rails/remote_internal.h - the parts of a remote rail at the door. */
#ifndef SL_TRANSPORTER_RAILS_REMOTE_INTERNAL_H
#define SL_TRANSPORTER_RAILS_REMOTE_INTERNAL_H

#include "actors/transporter/rails/remote.h"
#include "actors/transporter/rails/stream.h"
#include "runtime/fabric/core/internal.h"

#define REMOTE_PIECES_MAX 256u /* of a message; a transfer of more takes several */

enum remote_state {
    REMOTE_AWAY,    /* no process */
    REMOTE_OPENING, /* it registers memories */
    REMOTE_SERVING,
    REMOTE_DYING /* killed; its death is still to be told */
};

struct remote_memory {
    bool used, leaving;
    bool asked;  /* the process was told of it */
    bool there;  /* the process has registered it */
    bool told;   /* registered() was called */
    bool device; /* of a dmabuf: what has none */
    uint16_t generation;
    uint64_t since_ns; /* it is waited for: registered, or gone */
    struct sl_fabric_memory what;
};
struct remote_peer {
    bool used;
    bool tell; /* link() is due */
    uint16_t generation;
    uint8_t link; /* enum sl_fabric_link */
    void *blob;   /* its address; NULL: not known yet */
    uint32_t blob_bytes;
};
enum remote_grant_state {
    REMOTE_GRANT_FREE,
    REMOTE_GRANT_WANTED, /* of reading: the next process gets it */
    REMOTE_GRANT_ASKED,
    REMOTE_GRANT_LIVE,
    REMOTE_GRANT_LOST, /* of writing: went with its process; or refused */
    REMOTE_GRANT_ENDING,
    REMOTE_GRANT_GONE /* grant_ended() is due */
};
struct remote_grant {
    uint8_t state;
    bool tell; /* granted() without a key is due */
    uint16_t generation;
    uint64_t ending_ns;
    uint32_t shut;               /* number of the order that shut some of it last; 0: none did */
    struct sl_fabric_grant what; /* places: owned */
};
struct remote_key {
    bool used;
    uint16_t generation;
    uint32_t peer;
    void *blob; /* owned */
    uint32_t blob_bytes;
};
struct remote_post {
    bool used;
    uint8_t ended; /* its code, when done() is due without the process */
    uint32_t piece_count, next;
    uint64_t cookie, deadline_ns, bytes;
};

struct tr_remote {
    struct sl_fabric fabric; /* first: what the rails see */
    struct tr_remotes *all;
    struct sl_env *env;
    uint32_t index;
    char name[32], entry[160];
    enum remote_state state;
    struct sl_proc_id proc;
    struct tr_stream stream;
    uint64_t opened_ns, heard_ns, looked_ns, pinged_ns, killed_ns, lives;
    uint64_t region_bytes_max;
    struct remote_memory *memories;
    struct remote_peer *peers;
    struct remote_grant *grants;
    struct remote_key *keys;
    struct remote_post *posts;
    uint32_t free_post, posts_out, posts_ended; /* posts_ended: done() due */
    uint32_t grants_ending, grants_due;         /* grants_due: GONE, or tell */
    uint32_t shut_asked, shut_done;             /* numbers of RAIL_GRANTS_SHUT, in this life */
    uint64_t shut_ns;                           /* since when they differ */
    uint32_t memories_leaving,
        memories_coming; /* coming: asked for, and neither there nor leaving */
    bool memories_due, links_due;
    struct sl_fabric_stats earlier; /* of the lives before this one */
    uint8_t codes[SL_FABRIC_PIECES_MAX];
    struct sl_item_rail_piece items[REMOTE_PIECES_MAX]; /* of a message that is being made */
    struct sl_item_rail_place places[SL_FABRIC_PLACES_MAX];
    struct sl_item_rail_place shut[SL_FABRIC_SHUT_MAX];
};

/* NULL: there is none. */
struct remote_memory *remote_memory_of(const struct tr_remote *remote, uint32_t handle);
struct remote_peer *remote_peer_of(const struct tr_remote *remote, uint32_t handle);
struct remote_grant *remote_grant_of(const struct tr_remote *remote, uint32_t handle);
struct remote_key *remote_key_of(const struct tr_remote *remote, uint32_t handle);

/* ---- remote.c ---- */
/* Whether orders reach a process. */
bool remote_is_there(const struct tr_remote *remote);
/* Fills in the kind; a stream that breaks ends the process. */
void remote_order(struct tr_remote *remote, enum sl_rail_order kind,
                  struct sl_body_rail_order *body);
/* An order that has nothing but a handle. */
void remote_order_of(struct tr_remote *remote, enum sl_rail_order kind, uint32_t handle);
void remote_turn(struct sl_fabric *fabric, uint64_t now_ns);
uint64_t remote_due_at(const struct sl_fabric *fabric);
/* The process is killed: links are down, the rest ends with its death. */
void remote_break(struct tr_remote *remote, const char *reason);
/* For people: what its process said of itself; NULL: there is none. */
void remote_about(struct tr_remote *remote, const char *said);
/* Something may end or be told without the process: a step is due. */
void remote_due(struct tr_remote *remote);

/* ---- remote_front.c ---- */
extern const struct fabric_front tr_remote_front;
void remote_memory_order(struct tr_remote *remote, struct remote_memory *memory);
/* To be called before it is there, leaves or is forgotten: it is waited for no more. */
void remote_memory_came(struct tr_remote *remote, const struct remote_memory *memory);
/* shut: with that from the start. */
void remote_grant_order(struct tr_remote *remote, struct remote_grant *grant,
                        const struct sl_fabric_place *shut, uint32_t shut_count);
void remote_grant_free(struct remote_grant *grant);
void remote_key_order(struct tr_remote *remote, struct remote_key *key);
void remote_peer_order(struct tr_remote *remote, struct remote_peer *peer);

/* ---- remote_news.c ---- */
/* False: it makes no sense. */
bool remote_news(struct tr_remote *remote, const struct sl_body_rail_news *news);
bool remote_done(struct tr_remote *remote, const struct sl_body_rail_done *done);
/* Calls what is due without the process. */
void remote_events(struct tr_remote *remote);
/* The process is gone or began anew: nothing of it lands any more. */
void remote_over(struct tr_remote *remote);
/* All its memories are there: peers, grants and keys follow. */
void remote_serve_if_ready(struct tr_remote *remote);
void remote_links_down(struct tr_remote *remote);

#endif
