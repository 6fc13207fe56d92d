/* actors/registrar/records/policy.h - which values stay in memory.
 *
 * Units stand in lists (units.h): in memory, on disk alone, and three of what is passed by. Who is
 * in which list, what may leave and what must stay is decided elsewhere and is the same for every
 * policy. A policy keeps each list in the order in which its units go. */
#ifndef SL_REGISTRAR_RECORDS_POLICY_H
#define SL_REGISTRAR_RECORDS_POLICY_H

#include "actors/registrar/records/order.h"
#include "ipc/shm/sl_pins.h"

/* What a policy knows of a unit, for explanations. */
struct reg_judgement {
    bool classed; /* class and age in references are known */
    bool valued;  /* so is the value */
    uint8_t class_index, use_count;
    uint32_t age_references; /* since it was wanted last */
    float value;             /* hits that a reference of its stay is expected to bring */
    uint64_t age_ns;         /* since it was wanted last; 0: not known */
};

struct reg_policy {
    const char *name;
    /* The unit comes to the list, which does not have it. After a restart that is the order of the
     * commits. */
    void (*placed)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* A unit is placed soon, by the hash of its key: what that needs is fetched from memory. NULL:
     * it is not worth it. */
    void (*awaits)(const struct registrar *self, uint64_t hash);
    void (*removed)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* What is known of a unit that is in a list; all of it is 0 before. NULL: nothing ever is. */
    void (*judge)(struct registrar *self, sl_ref unit, struct reg_judgement *out);
    /* As placed: it was on disk alone a moment ago, and comes to memory. wanted: somebody asked for
     * it, who will touch it as well; else nobody did. NULL: placed. */
    void (*returned)(struct registrar *self, struct reg_order *list, sl_ref unit, bool wanted);
    /* Somebody wanted it, or is about to. */
    void (*touched)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* An engine said something of it with the use that was just told; NULL: the policy has no use
     * for that. */
    void (*said)(struct registrar *self, struct reg_order *list, sl_ref unit,
                 const struct sl_said *said);
    /* Its session comes back within so long: until then, or until it is used, it is kept, with what
     * is before it in its chain. NULL: the policy has no use for that. */
    void (*returning)(struct registrar *self, struct reg_order *list, sl_ref unit, uint64_t for_ns);
    /* It is wanted by nobody: before all others. */
    void (*sunk)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* Its record is another now, in the same place of the list; NULL: the list is all there is. */
    void (*renamed)(struct registrar *self, sl_ref old, sl_ref fresh);
    /* A walk over the units as they go; 0: no more. There is one at a time. next is called when it
     * is known whether the last one that was given went; goes: it stays for now, and will go. Any
     * unit may leave the list meanwhile. */
    sl_ref (*first)(struct registrar *self, struct reg_order *list);
    sl_ref (*next)(struct registrar *self, struct reg_order *list, bool goes);
    /* What it is worth to keep, on disk too, and the worth that a share (0 to 1) of what is on disk
     * alone is above (negative: nothing is learnt yet). NULL: it does not know; when it was wanted
     * last decides. */
    double (*worth)(const struct registrar *self, sl_ref unit);
    double (*worth_cut)(const struct registrar *self, double share);
    /* Whether an engine wants a unit that was in memory kept, and its time is not over. NULL:
     * nobody can. */
    bool (*kept)(const struct registrar *self, sl_ref unit);
    /* How likely somebody wants it (0 to 1) while so many units are wanted; NULL: it does not know.
     */
    double (*chance)(const struct registrar *self, sl_ref unit, uint64_t references);
    /* Its own state; NULL: none. Errors of begin: SL_ERR_NO_MEMORY. */
    sl_err (*begin)(struct registrar *self, struct sl_error *why);
    void (*end)(struct registrar *self);
    /* After a restart: all units are placed that were there before it. */
    void (*restored)(struct registrar *self);
    void (*learn)(struct registrar *self, sl_ref note, const void *bytes, uint32_t length_bytes);
};

/* X(NAME): each is reg_policy_NAME; the setting's choices are in runtime/base/sl_config.h. */
#define REG_POLICIES(X) \
    X(density)          \
    X(lru)
#define REG_POLICY_DECLARE(name) extern const struct reg_policy reg_policy_##name;
REG_POLICIES(REG_POLICY_DECLARE)

/* A note of what a policy learnt; another policy's is left alone. */
sl_err reg_policy_learn(struct registrar *self, sl_ref note, const void *bytes,
                        uint32_t length_bytes, struct sl_error *why);

/* The one of this name: a choice of the setting evict_policy. */
const struct reg_policy *reg_policy_find(const char *name);

#endif
