/* actors/registrar/disk/answers.h - table of requests that are answered later: FLUSH, REMOVE,
 * BRING, and COMMITs that wait for tombstones. */
#ifndef SL_REGISTRAR_DISK_ANSWERS_H
#define SL_REGISTRAR_DISK_ANSWERS_H

#include "actors/registrar/base/core.h"

#define REG_REMOVES_MAX 256u /* also COMMITs that wait for tombstones */
enum reg_answer_kind { REG_ANSWER_FLUSH, REG_ANSWER_REMOVE, REG_ANSWER_BRING, REG_ANSWER_AHEAD };
struct reg_answer { /* first member of the struct that each kind of request keeps */
    uint64_t id;    /* never reused */
    enum reg_answer_kind kind;
    struct sl_reply_route back;
};
struct reg_answers {
    struct reg_answer **all; /* max */
    uint32_t max, end;       /* all[end] and above are empty */
    uint64_t next;
};

#define REG_WAIT_NO_MEMORY \
    "no memory to let it wait: the registrar is at a limit of its process or container"
bool reg_answer_waits(const struct registrar *self, const struct sl_msg *msg); /* it was resent */
/* Allocates an entry of this size for the request, zeroed except for its struct reg_answer. NULL:
 * it waits already; or there is no room, and it was answered with an error unless a COMMIT. */
void *reg_answer_new(struct registrar *self, const struct sl_msg *msg, enum reg_answer_kind kind,
                     size_t bytes);
void *reg_answer_of(const struct registrar *self, uint64_t id); /* NULL: answered already */
/* Returns the next entry of this kind from index *at on and advances *at; NULL: no more. The caller
 * may drop the entry. */
void *reg_answer_next(const struct registrar *self, enum reg_answer_kind kind, uint32_t *at);
void reg_answer_drop(struct registrar *self, struct reg_answer *answer);

/* The answer `id` waits, for its key `index`, for one more tombstone on this disk; done: for one
 * less. Both ignore an id that was answered already. */
void reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
/* A tombstone could not be created: the key's code in the answer becomes `code`. */
void reg_remove_failed(struct registrar *self, uint64_t id, uint32_t index, sl_err code);

extern const struct reg_part reg_answers_part;

#endif
