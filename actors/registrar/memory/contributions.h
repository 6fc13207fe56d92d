/* actors/registrar/memory/contributions.h - memory that processes contribute to the node, and the
 * values charged to it.
 *
 * With the setting `contributions` the arena holds the bytes, but the sum of the contributions
 * limits them. Every extent is charged to one contribution, chosen once. Its number is in the
 * extent's record, of whatever kind, and nowhere else, so a restart finds every sum by reading the
 * records.
 *
 * A contribution that ends keeps its number until no record has it: the records are walked in
 * slices of the event loop until nothing is left. */
#ifndef SL_REGISTRAR_CONTRIBUTIONS_H
#define SL_REGISTRAR_CONTRIBUTIONS_H

#include "actors/registrar/base/core.h"

#define REG_CONTRIBUTIONS_MAX          64u
#define REG_CONTRIBUTION_NAME_BYTES    256u
#define REG_CONTRIBUTION_PREFERRED_MAX 16u /* of one request; from the message table */
#define REG_CONTRIBUTIONS_ENDED        256u

enum reg_contribution_state {
    REG_CONTRIBUTION_FREE,
    REG_CONTRIBUTION_ACTIVE,
    REG_CONTRIBUTION_ENDING, /* its values are leaving memory */
};
struct reg_contribution {
    enum reg_contribution_state state;
    char name[REG_CONTRIBUTION_NAME_BYTES];
    char process[32];       /* that contributed it */
    struct sl_proc_id proc; /* none: the contribution outlasts processes */
    uint32_t serial;        /* not reused by this registrar */
    uint64_t length_bytes, used_bytes, value_count;
    sl_ref note;                /* 0: the index had no room for it */
    bool waited;                /* a WITHDRAW waits for its end: */
    struct sl_reply_route back; /* answered when no record has the number */
    bool asked;                 /* a CONTRIBUTE waits for memory: */
    struct sl_reply_route asker;
    uint64_t asked_until_ns; /* answered once first puts find memory, at the latest then */
};

struct reg_contributions {
    bool on;
    uint64_t active, ending; /* sets of numbers */
    uint64_t asked;          /* numbers whose CONTRIBUTE waits */
    uint32_t last_serial;
    struct reg_contribution all[REG_CONTRIBUTIONS_MAX];
    /* the walk over the records */
    bool walking;
    uint64_t cursor;
    uint64_t again_ns; /* next walk; SL_NEVER_NS: nothing is left */
    bool some_left;    /* this walk found values without a contribution */
    bool some_stayed;  /* some of them could not leave yet */
    /* for explain: why values are absent; a ring by serial */
    struct reg_ended {
        uint32_t serial;
        char text[REG_CONTRIBUTION_NAME_BYTES + 32];
    } * ended;
    bool lowering; /* evicting down to the lower watermark */
    uint64_t lower_again_ns;
    uint64_t watermark_ppm, ratio_ppm; /* settings */
    struct {
        sl_metric contribution_count, contributed_bytes, contributed_used_bytes;
    } metric;
};

/* Contributions that a RESERVE prefers. */
struct reg_preferences {
    struct reg_preferred {
        uint8_t number;
        uint32_t serial; /* distinguishes uses of the number */
    } preferred[REG_CONTRIBUTION_PREFERRED_MAX];
    uint32_t count;
};

/* ---- contributions.c ---- */
/* The existing contributions of these names, in their order. */
void reg_preferences_make(const struct registrar *self, const struct sl_texts *names,
                          struct reg_preferences *out);
/* Why a value charged to the contribution of this serial is absent. Borrowed. */
const char *reg_contribution_ended_text(const struct registrar *self, uint32_t serial);
/* Frees the contribution's number if it has ended and no record is charged to it. */
void reg_contribution_free_if_empty(struct registrar *self, uint32_t number);

/* ---- charges.c; charged is 1 + a contribution's number, 0: none ---- */
uint32_t reg_charge_of(const struct registrar *self, sl_ref ref);
/* Writes into the record to which contribution its extent is charged. */
void reg_charge_set(struct registrar *self, sl_ref ref, uint32_t charged);
/* Checks before a claim becomes a value that its contribution still exists. Errors: SL_ERR_NO_SPACE
 * (it ended). */
sl_err reg_charge_check(const struct registrar *self, sl_ref ref);
/* Takes an extent and charges it, evicting if needed; for_prefetch: as reg_take_for_prefetch.
 * Errors: SL_ERR_NO_SPACE. */
sl_err reg_take_charged(struct registrar *self, const struct reg_preferences *wish,
                        uint64_t length_bytes, uint64_t *offset_bytes, uint32_t *charged);
sl_err reg_take_charged_for_prefetch(struct registrar *self, uint64_t length_bytes,
                                     uint64_t batch_bytes, uint64_t *offset_bytes,
                                     uint32_t *charged);
void reg_give_charged(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes,
                      uint32_t charged);
/* Makes want_bytes free in all contributions together, evicting if needed; false: less is free. */
bool reg_charge_room(struct registrar *self, uint64_t want_bytes);
/* Whether values of these sizes fit into empty contributions, each into one. Sorts spaces. */
bool reg_charge_fits_all(const struct registrar *self, uint64_t *spaces, uint32_t count);
/* The largest size that fits into a contribution. */
uint64_t reg_charge_largest(const struct registrar *self);
/* Counts the charge of a record after a restart. */
void reg_charge_recover(struct registrar *self, sl_ref ref);
/* The limit of memory in use, and the memory in use. */
uint64_t reg_ceiling_bytes(const struct registrar *self);
uint64_t reg_used_bytes(const struct registrar *self);

extern const struct reg_part reg_contributions_part;

extern const struct reg_part reg_charges_part;

#endif
