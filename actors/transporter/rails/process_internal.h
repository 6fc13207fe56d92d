/* actors/transporter/rails/process_internal.h - the parts of a rail's process. */
#ifndef SL_TRANSPORTER_RAILS_PROCESS_INTERNAL_H
#define SL_TRANSPORTER_RAILS_PROCESS_INTERNAL_H

#include "actors/transporter/rails/process.h"
#include "actors/transporter/rails/stream.h"
#include "ipc/sl_arena.h"
#include "runtime/fabric/core/cover.h"

#define PROCESS_ARENAS_MAX 64u

/* The door's number of a thing and ours, by the door's slot. */
struct process_row {
    bool used, leaving; /* leaving: a memory that goes, region by region */
    bool up;            /* peers: their link */
    uint32_t door, own;
    uint32_t handed; /* memories: 1 + place of its descriptor; 0: an arena's */
    void *key;       /* grants: until granted() says that it works; owned */
    uint32_t key_bytes;
    struct sl_cover shut; /* grants: what is not written any more, as the key counts */
    bool checks;          /* grants: some of that may still land */
};
struct process_table {
    struct process_row *rows;
    uint32_t count;
    uint32_t *door_of; /* by our slot: the door's number */
};
/* A descriptor that the door handed out, by its number there. */
struct process_handed {
    uint32_t users; /* memories; 0: free */
    bool device;    /* a dmabuf: the descriptor itself is kept, nothing is mapped */
    int fd;         /* -1: it is mapped */
    uint64_t number, length_bytes;
    unsigned char *base;
};
struct process_post {
    bool used;
    uint32_t piece_count;
    uint64_t cookie; /* the door's; ours is the slot */
};
struct tr_process {
    struct sl_env *env;
    struct sl_fabric_options options; /* of this rail */
    struct sl_fabric *fabric;
    uint32_t index;
    char entry[160];
    uint64_t life;
    bool noted;  /* others see that it does (ipc/sl_rails.h) */
    bool known;  /* a registrar has noted this process: its fences reach it */
    bool opened; /* the door orders in this life */
    struct sl_proc_id door;
    struct tr_stream stream;
    uint64_t hello_due_ns, stats_due_ns;
    struct sl_fabric_stats told; /* the stats that the door has */
    struct {
        sl_metric read_bytes, written_bytes, served_bytes, taken_bytes, transfers, links_up;
        sl_metric links_lost, refused, lives;
    } metric;
    uint32_t posts_out, links_up;
    uint32_t shut_asked, shut_told; /* numbers of RAIL_GRANTS_SHUT and RAIL_SHUT */
    struct sl_arena *arenas[PROCESS_ARENAS_MAX];
    struct process_table memories, peers, grants, keys;
    struct process_handed *handed; /* as many as memories */
    struct process_post *posts;
    uint32_t memories_leaving;
    bool broken;                        /* this life has to end */
    uint32_t gathered, gathered_places; /* of a transfer whose last message is still to come */
    uint64_t gathered_slot;
    sl_err gathered_code;           /* SL_OK, or why it cannot be posted */
    struct sl_fabric_place *places; /* places_max */
    uint32_t places_max;
    struct sl_fabric_piece pieces[SL_FABRIC_PIECES_MAX];
    struct sl_digest digests[SL_FABRIC_PIECES_MAX];
    uint8_t codes[SL_FABRIC_PIECES_MAX];
    unsigned char key[SL_FABRIC_BLOB_MAX];
};

/* ---- process.c ---- */
void process_news(struct tr_process *process, enum sl_rail_news kind,
                  struct sl_body_rail_news *news);
/* The life ends at the end of this turn. */
void process_break(struct tr_process *process, const char *reason);

/* ---- orders.c ---- */
/* Does what the door wants; process_break where that makes no sense. */
void process_order(struct tr_process *process, const struct sl_body_rail_order *order);
void process_post(struct tr_process *process, const struct sl_msg *msg);
/* Tells when nothing lands any more in what was shut; asks for the next turn until then. */
void process_shut_step(struct tr_process *process);
/* Events of the fabric. */
struct sl_fabric_events process_events(struct tr_process *process);
void process_key_drop(struct process_row *row);
/* NULL: the door has no such thing here. */
struct process_row *process_row_of(const struct process_table *table, uint64_t door);
/* NULL: its slot is taken, or there is none: the door has lost count. */
struct process_row *process_row_new(struct tr_process *process, struct process_table *table,
                                    uint64_t door);
void process_row_set(struct process_table *table, struct process_row *row, uint64_t door,
                     uint32_t own);
/* By our number: the row that stands for it. NULL: none any more. */
struct process_row *process_row_by_own(const struct process_table *table, uint32_t own);
void process_news_why(struct sl_body_rail_news *news, const struct sl_error *why);

/* ---- memories.c ---- */
void process_memory_add(struct tr_process *process, const struct sl_body_rail_order *order);
void process_memory_go(struct tr_process *process, uint64_t handle);
/* Regions of memories that leave, one a turn; asks for the next turn. */
void process_memories_step(struct tr_process *process);
void process_on_registered(void *process, uint32_t memory, uint32_t region_index,
                           const struct sl_error *why);
/* A memory that is not registered any more lets go of its descriptor. */
void process_handed_leave(struct tr_process *process, struct process_row *row);
/* Of all memories; the fabric is closed. */
void process_handed_clear(struct tr_process *process);

#endif
