/* tests/unit/registrar_support.h - a registrar in a fake environment, spoken to by messages alone.
 */
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
/* HELLO; the process is made to live. Gives the code of the reply. */
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
    const char *contributions[16]; /* whom it would like to be charged */
    uint32_t contribution_count;
    uint64_t seq; /* 0: a new one; written back */
};
/* Sends; false: no answer yet. */
bool node_reserve(struct node *node, struct reserve_ask *ask, struct grants *out);
bool node_reserved(struct node *node, const struct reserve_ask *ask,
                   struct grants *out); /* the answer came later */
/* One object, which must be granted. */
struct sl_item_grant node_grant(struct node *node, const char *sender, const char *key,
                                uint64_t length);

struct sl_digest digest_of_key(const char *key);
sl_err node_commit(struct node *node, const char *sender, const char *key,
                   const struct sl_item_grant *grant);
/* Several at once, as a chain when tail_first. codes may be NULL: all must be SL_OK. */
void node_commit_all(struct node *node, const char *sender, const char *const *keys,
                     const struct sl_item_grant *grants, uint32_t count, bool tail_first,
                     sl_err *codes);
sl_err node_abort(struct node *node, const char *sender, const struct sl_item_grant *grant);
/* All of an op, whatever was granted to it. */
void node_abort_op(struct node *node, const char *sender, uint64_t op_id);
void node_put(struct node *node, const char *sender, const char *key, uint64_t length);
/* A block of `count` parts "GROUP/0" ... in one reserve and one commit. */
void node_put_block(struct node *node, const char *sender, const char *group, uint32_t count,
                    uint64_t length, uint64_t transient_ns);
/* A block of one part, KEY/0, of which the engine says something. parent_hash: of the block before
 * it; 0: none. */
void node_put_said(struct node *node, const char *sender, const char *key, uint64_t parent_hash,
                   uint64_t length, const struct sl_said *said);
sl_err node_remove(struct node *node, const char *sender, const char *key);

bool node_sees(struct node *node, const char *key); /* as a reader */
bool node_entry(struct node *node, const char *key, struct sl_entry *out);
uint64_t node_metric(struct node *node, const char *name);

/* ---- a tierer played by the test ---- */
#define TIERER_PID 900u
/* Which one the functions below play from now on (tierer.0 without a name of its disk, if never
 * called). store: name of the disk, at most 16 characters; empty: none. */
void tierer_play(uint32_t number, const char *store);
void tierer_arrive(struct node *node, uint32_t pid);
/* Acknowledges the fence that a registrar sends to a tierer that is new to it; the first scan does
 * so too. */
void tierer_fenced(struct node *node);
/* A scan that finds nothing: the tier takes work. */
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
/* Answers all DISK_WRITEs that are there: every value goes to segment at increasing offsets. Gives
 * how many values. */
uint32_t tierer_write(struct node *node, uint32_t segment, sl_err code);
uint32_t tierer_read(struct node *node, sl_err code);
uint32_t tierer_prefetch(struct node *node, sl_err code);
uint32_t tierer_forget(struct node *node, sl_err code);
/* The oldest segment is to go; gone: its file has. Gives the number of the request. */
uint64_t tierer_reclaim(struct node *node, uint32_t segment, bool gone);
/* Whether that was answered, with SL_OK. Its file goes then, and the registrar forgets it. */
bool tierer_reclaimed(struct node *node, uint32_t segment, uint64_t seq);

#endif
