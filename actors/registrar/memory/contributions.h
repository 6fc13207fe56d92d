/* actors/registrar/memory/contributions.h - what processes lend to the node, and which values are
 * charged to it.
 *
 * With the setting `contributions` the arena is only where bytes lie: how many there may be is the
 * sum of what is contributed, and every extent is charged to one contribution, chosen once. Its
 * number stands in the extent's record, whatever kind it is of, and nowhere else, so a restart
 * finds every sum by reading the records.
 *
 * A contribution that ends keeps its number until no record has it any more: the records are walked
 * in slices of the event loop, again and again until nothing is left. */
#ifndef SL_REGISTRAR_CONTRIBUTIONS_H
#define SL_REGISTRAR_CONTRIBUTIONS_H

#include "actors/registrar/base/core.h"

#define REG_CONTRIBUTIONS_MAX       64u
#define REG_CONTRIBUTION_NAME_BYTES 256u
#define REG_CONTRIBUTION_WISHES_MAX 16u /* of one request, as the message table says */
#define REG_CONTRIBUTIONS_ENDED     256u

enum reg_contribution_state {
    REG_CONTRIBUTION_FREE,
    REG_CONTRIBUTION_STANDS,
    REG_CONTRIBUTION_ENDS, /* its values are leaving memory */
};
struct reg_contribution {
    enum reg_contribution_state state;
    char name[REG_CONTRIBUTION_NAME_BYTES];
    char process[32];       /* whose it is */
    struct sl_proc_id proc; /* none: it lasts */
    uint32_t serial;        /* never reused while this registrar lives */
    uint64_t length_bytes, used_bytes, value_count;
    sl_ref note;           /* 0: the index had no room for it */
    bool waited;           /* a WITHDRAW waits for its end: */
    struct sl_return back; /* answered when no record has its number any more */
    bool asked;            /* a CONTRIBUTE waits for memory: */
    struct sl_return asker;
    uint64_t asked_until_ns; /* answered when its first puts find some, and at the latest then */
};

struct reg_contributions {
    bool on;
    uint64_t standing, ending; /* sets of numbers */
    uint64_t asked;            /* set of numbers: CONTRIBUTEs that wait */
    uint32_t last_serial;
    struct reg_contribution all[REG_CONTRIBUTIONS_MAX];
    /* the walk over the records */
    bool walking;
    uint64_t cursor;
    uint64_t again_ns; /* they are walked again then; SL_NEVER_NS: nothing was left */
    bool some_left;    /* this walk found something that nobody pays for */
    bool some_stayed;  /* and some of it could not leave yet */
    /* why what was charged to them is not there, for explain: a ring by serial */
    struct reg_ended {
        uint32_t serial;
        char text[REG_CONTRIBUTION_NAME_BYTES + 32];
    } * ended;
    bool lowering; /* evicting down to below the watermark */
    uint64_t lower_again_ns;
    uint64_t watermark_ppm, ratio_ppm; /* settings */
    struct {
        sl_metric contribution_count, contributed_bytes, contributed_used_bytes;
    } metric;
};

/* Whom a RESERVE would like to be charged. */
struct reg_wish {
    struct reg_wished {
        uint8_t number;
        uint32_t serial; /* a later contribution of that number is not meant */
    } preferred[REG_CONTRIBUTION_WISHES_MAX];
    uint32_t count;
};

/* ---- contributions.c ---- */
/* Numbers of those of the names that stand, in their order. */
void reg_wish_make(const struct registrar *self, const struct sl_texts *names,
                   struct reg_wish *out);
/* Why a value is not there that was charged to the contribution of this serial. Borrowed. */
const char *reg_contribution_ended_text(const struct registrar *self, uint32_t serial);
/* Ends for good when no record is charged any more. */
void reg_contribution_left(struct registrar *self, uint32_t number);

/* ---- charges.c; who is charged is 1 + a number, 0: nobody ---- */
uint32_t reg_charge_of(const struct registrar *self, sl_ref ref);
/* The record says who is charged with its extent. */
void reg_charge_note(struct registrar *self, sl_ref ref, uint32_t charged);
/* Before the extent of a claim becomes a value's: who is charged must still be there. Errors:
 * SL_ERR_NO_SPACE (it ended). */
sl_err reg_charge_settle(const struct registrar *self, sl_ref ref);
/* An extent that is charged; *offset_bytes and *charged, evicting when it must. quietly: only what
 * costs nobody anything. Errors: SL_ERR_NO_SPACE. */
sl_err reg_take_charged(struct registrar *self, const struct reg_wish *wish, uint64_t length_bytes,
                        uint64_t *offset_bytes, uint32_t *charged);
sl_err reg_take_charged_quietly(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                                uint64_t *offset_bytes, uint32_t *charged);
void reg_give_charged(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes,
                      uint32_t charged);
/* Makes want_bytes free in all contributions together, evicting; false: less is. */
bool reg_charge_room(struct registrar *self, uint64_t want_bytes);
/* Whether values that take so many bytes each can be charged side by side, were nothing else there:
 * each lies in one contribution. Sorts spaces. */
bool reg_charge_packs(const struct registrar *self, uint64_t *spaces, uint32_t count);
/* No value that takes more space can be charged to anybody. */
uint64_t reg_charge_largest(const struct registrar *self);
/* A record of a restart: its charge counts again. */
void reg_charge_recover(struct registrar *self, sl_ref ref);
/* What may be used, and what is. */
uint64_t reg_ceiling_bytes(const struct registrar *self);
uint64_t reg_used_bytes(const struct registrar *self);

extern const struct reg_part reg_contributions_part;

extern const struct reg_part reg_charges_part;

#endif
