/* actors/registrar/disk/answers.h - requests whose answer waits for a disk: FLUSH, REMOVE, BRING,
 * and COMMITs that wait for tombstones. */
#ifndef SL_REGISTRAR_DISK_ANSWERS_H
#define SL_REGISTRAR_DISK_ANSWERS_H

#include "actors/registrar/base/core.h"

#define REG_REMOVES_MAX 256u /* also COMMITs that wait for tombstones */
enum reg_answer_kind { REG_ANSWER_FLUSH, REG_ANSWER_REMOVE, REG_ANSWER_BRING, REG_ANSWER_AHEAD };
struct reg_answer { /* the first member of what its kind keeps */
    uint64_t id;    /* never used again */
    enum reg_answer_kind kind;
    struct sl_return back;
};
struct reg_answers {
    struct reg_answer **all; /* max */
    uint32_t max, end;       /* none is at `end` or behind it */
    uint64_t next;
};

#define REG_WAIT_NO_MEMORY \
    "no memory to let it wait: the registrar is at a limit of its process or container"
bool reg_answer_waits(const struct registrar *self, const struct sl_msg *msg); /* sent again */
/* So many bytes, zeroed but for their struct reg_answer. NULL: it waits already, or it was refused
 * with the reason. */
void *reg_answer_new(struct registrar *self, const struct sl_msg *msg, enum reg_answer_kind kind,
                     size_t bytes);
void *reg_answer_of(const struct registrar *self, uint64_t id); /* NULL: it was answered */
/* The next of this kind from *at on, which moves behind it; NULL: there is none. It may be dropped.
 */
void *reg_answer_next(const struct registrar *self, enum reg_answer_kind kind, uint32_t *at);
void reg_answer_drop(struct registrar *self, struct reg_answer *answer);

/* One more to wait for: a tombstone of this disk. */
void reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
/* No tombstone could be asked for: the answer says so. */
void reg_remove_failed(struct registrar *self, uint64_t id, uint32_t index, sl_err code);

extern const struct reg_part reg_answers_part;

#endif
