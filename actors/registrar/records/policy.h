/* actors/registrar/records/policy.h - the interface of eviction policies: which units leave first.
 *
 * Units are in lists (units.h): in memory, on disk only, and three that eviction skips. Which list
 * a unit is in, and whether it may leave, is the same for every policy. A policy orders each
 * list. */
#ifndef SL_REGISTRAR_RECORDS_POLICY_H
#define SL_REGISTRAR_RECORDS_POLICY_H

#include "actors/registrar/records/order.h"
#include "ipc/shm/sl_pins.h"

/* A policy's knowledge of a unit, for explanations. */
struct reg_judgement {
    bool classed; /* class and age in references are known */
    bool valued;  /* so is the value */
    uint8_t class_index, use_count;
    uint32_t age_references; /* since it was last used */
    float value;             /* expected hits for each reference that it stays */
    uint64_t age_ns;         /* since it was last used; 0: unknown */
};

struct reg_policy {
    const char *name;
    /* The unit joins the list. After a restart units join in the order of generations. */
    void (*placed)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* A unit with this key hash is placed soon: prefetch what that reads. NULL: not worth it. */
    void (*awaits)(const struct registrar *self, uint64_t hash);
    void (*removed)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* Fills in what is known about a listed unit; *out is zeroed. NULL: nothing is known. */
    void (*judge)(struct registrar *self, sl_ref unit, struct reg_judgement *out);
    /* Like placed, for a unit that was on disk only and returns to memory. wanted: a request needs
     * it and will touch it as well. NULL: placed. */
    void (*returned)(struct registrar *self, struct reg_order *list, sl_ref unit, bool wanted);
    /* The unit was used, or is about to be. */
    void (*touched)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* An engine's hints about the use that was just reported; NULL: ignored. */
    void (*said)(struct registrar *self, struct reg_order *list, sl_ref unit,
                 const struct sl_packed_hints *said);
    /* The unit's session is expected within for_ns: keep the unit, and those before it in its
     * chain, until then or until its use. NULL: ignored. */
    void (*returning)(struct registrar *self, struct reg_order *list, sl_ref unit, uint64_t for_ns);
    /* The unit is of no more use: it leaves before all others. */
    void (*sunk)(struct registrar *self, struct reg_order *list, sl_ref unit);
    /* The unit's record was replaced, at the same place of the list; NULL: nothing to do. */
    void (*renamed)(struct registrar *self, sl_ref old, sl_ref fresh);
    /* A walk over the units in the order of eviction; 0: the end. Only one walk runs at a time.
     * next is called when the outcome of the last unit is known. Its flag: that unit is still
     * listed, but will leave. Any unit may leave the list meanwhile. */
    sl_ref (*first)(struct registrar *self, struct reg_order *list);
    sl_ref (*next)(struct registrar *self, struct reg_order *list, bool goes);
    /* The value of keeping a unit, also on disk; and the value that this share (0 to 1) of the
     * units on disk only exceeds (negative: nothing is learnt yet). NULL: unknown, recency
     * decides. */
    double (*worth)(const struct registrar *self, sl_ref unit);
    double (*worth_cut)(const struct registrar *self, double share);
    /* Whether a unit that was in memory still has a retention hint. NULL: never. */
    bool (*kept)(const struct registrar *self, sl_ref unit);
    /* The chance (0 to 1) that a unit is used within this number of references; NULL: unknown. */
    double (*chance)(const struct registrar *self, sl_ref unit, uint64_t references);
    /* The policy's own state; NULL: none. Errors of begin: SL_ERR_NO_MEMORY. */
    sl_err (*begin)(struct registrar *self, struct sl_error *why);
    void (*end)(struct registrar *self);
    /* After a restart: all units that existed before it are placed. */
    void (*restored)(struct registrar *self);
    void (*learn)(struct registrar *self, sl_ref note, const void *bytes, uint32_t length_bytes);
};

/* X(NAME): each is reg_policy_NAME; the setting's choices are in runtime/base/sl_config.h. */
#define REG_POLICIES(X) \
    X(density)          \
    X(lru)
#define REG_POLICY_DECLARE(name) extern const struct reg_policy reg_policy_##name;
REG_POLICIES(REG_POLICY_DECLARE)

/* Gives the policy a note of what it learnt before a restart; other policies ignore it. */
sl_err reg_policy_learn(struct registrar *self, sl_ref note, const void *bytes,
                        uint32_t length_bytes, struct sl_error *why);

/* Finds a policy by its name in the setting evict_policy. */
const struct reg_policy *reg_policy_find(const char *name);

#endif
