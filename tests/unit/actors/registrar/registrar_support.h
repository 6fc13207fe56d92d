/* tests/unit/actors/registrar/registrar_support.h - a registrar in a fake environment; tests use it
 * only through messages. */
#ifndef REGISTRAR_SUPPORT_H
#define REGISTRAR_SUPPORT_H

#include "actors/registrar/registrar.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_pins.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_ITEMS_MAX 4096u

struct node {
    struct fake_env fake;
    struct sl_index_view *view;
};

/* One object of a RESERVE. */
struct want {
    const char *key;
    uint64_t length;
    uint32_t group; /* 1 + index */
    uint32_t part;
    const char *writer;
    const char *bundle;
};
struct grants {
    sl_err code;
    uint32_t count;
    struct sl_item_grant at[NODE_ITEMS_MAX];
};

/* settings: name, text, ..., NULL; memory is 4 MiB, index 4 MiB unless they say otherwise. */
struct node *node_start(const char *const *settings);
void node_end(struct node *node);
void node_restart(struct node *node); /* as after SIGKILL */

struct sl_proc_id proc_of(uint32_t pid);
/* Sends HELLO from a process that is made to live. Returns the code of the reply. */
sl_err node_hello(struct node *node, const char *name, const char *role, uint32_t pid);
sl_err node_hello_pins(struct node *node, const char *name, const char *role, uint32_t pid,
                       const char *segment);
void node_client(struct node *node, const char *name, uint32_t pid);

struct reserve_ask {
    const char *sender;
    uint64_t op_id;
    const struct want *wants;
    uint32_t count;
    const char *group_key; /* NULL: none */
    uint32_t part_count;
    uint64_t transient_ns;
    uint64_t parent_hash, hint, priority, keep_ns; /* of the group */
    uint64_t ttl_ns;
    uint64_t budget_ns;
    uint64_t hold_id, hold_ns;
    bool wait;
    bool hard_pin, replace, draft;
    uint64_t soft_pin_ns;
    const char *contributions[16]; /* the contributions that it prefers to be charged to */
    uint32_t contribution_count;
    uint64_t seq; /* 0: a new one; written back */
};
/* Sends the request; false: no answer yet. */
bool node_reserve(struct node *node, struct reserve_ask *ask, struct grants *out);
bool node_reserved(struct node *node, const struct reserve_ask *ask,
                   struct grants *out); /* for an answer that arrives later */
/* Reserves one object, which must be granted. */
struct sl_item_grant node_grant(struct node *node, const char *sender, const char *key,
                                uint64_t length);

struct sl_digest digest_of_key(const char *key);
sl_err node_commit(struct node *node, const char *sender, const char *key,
                   const struct sl_item_grant *grant);
/* Commits several at once, as a chain when tail_first. codes may be NULL: all must be SL_OK. */
void node_commit_all(struct node *node, const char *sender, const char *const *keys,
                     const struct sl_item_grant *grants, uint32_t count, bool tail_first,
                     sl_err *codes);
sl_err node_abort(struct node *node, const char *sender, const struct sl_item_grant *grant);
/* Aborts all claims of an op. */
void node_abort_op(struct node *node, const char *sender, uint64_t op_id);
void node_put(struct node *node, const char *sender, const char *key, uint64_t length);
/* Puts a block of `count` parts "GROUP/0" ... in one reserve and one commit. */
void node_put_block(struct node *node, const char *sender, const char *group, uint32_t count,
                    uint64_t length, uint64_t transient_ns);
/* Puts a block of one part, KEY/0, with the engine's hints. parent_hash: of the block before it; 0:
 * none. */
void node_put_hinted(struct node *node, const char *sender, const char *key, uint64_t parent_hash,
                     uint64_t length, const struct sl_packed_hints *said);
sl_err node_remove(struct node *node, const char *sender, const char *key);

bool node_is_visible(struct node *node, const char *key); /* to a reader */
bool node_entry(struct node *node, const char *key, struct sl_entry *out);
uint64_t node_metric(struct node *node, const char *name);

/* ---- a tierer played by the test ---- */
#define TIERER_PID 900u
/* Selects the tierer that the functions below play from now on (by default tierer.0 without a disk
 * name). store: name of the disk, at most 16 characters; empty: none. */
void tierer_select(uint32_t number, const char *store);
void tierer_arrive(struct node *node, uint32_t pid);
/* Acknowledges the fence that a registrar sends to a new tierer; the first scan does so as well. */
void tierer_fenced(struct node *node);
/* Runs a scan that finds nothing: the tier then takes work. */
void tierer_ready(struct node *node);
struct found {
    const char *key, *group;
    uint32_t part, parts;
    uint64_t length;
    uint32_t segment;
    uint64_t offset;
    const char *digest_key; /* NULL: key */
};
void tierer_found(struct node *node, const struct found *items, uint32_t count, bool first,
                  bool last, sl_err *codes);
/* Answers all pending DISK_WRITEs: every value is placed in segment at increasing offsets. Returns
 * the number of values. */
uint32_t tierer_write(struct node *node, uint32_t segment, sl_err code);
uint32_t tierer_read(struct node *node, sl_err code);
uint32_t tierer_prefetch(struct node *node, sl_err code);
uint32_t tierer_forget(struct node *node, sl_err code);
/* Asks to reclaim the oldest segment; gone: its file no longer exists. Returns the number of the
 * request. */
uint64_t tierer_reclaim(struct node *node, uint32_t segment, bool gone);
/* Whether that was answered with SL_OK. Then reports the file as removed, and the registrar forgets
 * the segment. */
bool tierer_reclaimed(struct node *node, uint32_t segment, uint64_t seq);

#endif
