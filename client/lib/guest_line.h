/* client/lib/guest_line.h - the connection of a guest to the stand-in that writes for it: slots of a window,
 * a question about each, answers in any thread. */
#ifndef SL_CLIENT_LIB_GUEST_LINE_H
#define SL_CLIENT_LIB_GUEST_LINE_H

#include "client/lib/internal.h"
#include "ipc/gate_protocol.h"
#include "ipc/sl_gate.h"

#include <pthread.h>

/* The stand-in ends its work a little before we give up, so that its answer still counts. */
#define GUEST_MARGIN_NS (20 * SL_NS_PER_MS)
/* Drafts that are over, and could not be said so yet; others end by their time. */
#define GUEST_DROPS_MAX 16u

enum guest_slot_state {
    GUEST_SLOT_FREE,
    GUEST_SLOT_TAKEN, /* a thread's: to be filled, or with an answer that it reads */
    GUEST_SLOT_ASKED,
    GUEST_SLOT_ANSWERED,
    GUEST_SLOT_GIVEN_UP /* asked; nobody waits for the answer */
};
struct guest_slot {
    enum guest_slot_state state;
    enum sl_gate_question question; /* the last one, ... */
    uint32_t count;                 /* ... with so many items */
    sl_err code;                    /* of the answer */
    char text[SL_GATE_TEXT_BYTES];
};
struct guest_line {
    int fd;
    unsigned char *window;
    uint64_t window_bytes, slot_bytes;
    uint32_t slot_count;
    uint32_t number; /* of the client's lines, from 1 on; none has it again */
    uint32_t uses;
    bool gone;    /* its stand-in is, or spoke otherwise than it should */
    bool reading; /* a thread waits at the socket */
    /* Views that are over, and could not be said so yet: bits. */
    uint64_t unpins[SL_GATE_VIEWS_MAX / 64];
    uint32_t unpin_count;
    /* Views that the caller holds: bits. They are pinned as long as pins_fd is open (sl_pins_keep), whatever
     * becomes of the stand-in. */
    uint64_t views[SL_GATE_VIEWS_MAX / 64];
    uint32_t view_count;
    int pins_fd; /* -1: none was wanted yet, or the gate tells no pins; under `keeping` and the lock */
    struct guest_line *next; /* of past ones */
    char pins[SL_GATE_PINS_BYTES];
    uint32_t drops[GUEST_DROPS_MAX]; /* the same of drafts: numbers */
    uint32_t drop_count;
    struct guest_slot slots[SL_GATE_SLOTS];
};
struct guest_lines {
    const struct sl_client *client; /* borrowed */
    pthread_mutex_t lock;           /* all below, and the lines */
    pthread_cond_t changed;
    struct guest_line *line; /* NULL: none stands */
    struct guest_line *past; /* those that are gone, while a thread uses them or views are held */
    uint32_t count;          /* that were opened */
    bool opening;
    pthread_mutex_t keeping; /* before the lock: who opens a pin segment, or closes one */
};

void guest_lines_init(struct guest_lines *lines, const struct sl_client *client);
/* Ends the stand-in where this process opened the client: a fork only loses what it has of it. */
void guest_lines_close(struct guest_lines *lines);
/* The one that stands, or a new one; to be left. Errors: those of sl_gate_writer_open, SL_ERR_TIMEOUT,
 * SL_ERR_INVALID (a fork asks). */
sl_err guest_line_enter(struct guest_lines *lines, uint64_t deadline_ns, struct guest_line **out,
                        struct sl_error *why);
void guest_line_leave(struct guest_lines *lines, struct guest_line *line);
/* Sees to it that what is pinned at the line now stays so (sl_pins_keep). One system call where it does.
 * Errors: SL_ERR_UNREACHABLE (one of the two stand-ins is gone). */
sl_err guest_line_keep(struct guest_lines *lines, struct guest_line *line, struct sl_error *why);
/* The caller holds a view from now on, until guest_line_unpin. */
void guest_line_view(struct guest_lines *lines, struct guest_line *line, uint32_t view);
/* Whether what was pinned at the line of this number is pinned yet; two system calls at most. */
bool guest_line_pins(struct guest_lines *lines, uint32_t number);
/* Where the stand-in takes nothing now, it is said with the next call. */
void guest_line_unpin(struct guest_lines *lines, uint32_t line, uint32_t view);
/* The same of a draft: nothing of it is asked any more. */
void guest_line_drop(struct guest_lines *lines, struct guest_line *line, uint32_t draft);

/* A slot to fill for this question; waits for one unless `waits` is false. Questions that may wait for others
 * of the node, puts and drafts, leave one slot to the rest. Errors: SL_ERR_BUSY (none is free now),
 * SL_ERR_TIMEOUT, SL_ERR_UNREACHABLE. */
sl_err guest_slot_take(struct guest_lines *lines, struct guest_line *line,
                       enum sl_gate_question question, bool waits, uint64_t deadline_ns,
                       uint32_t *slot, struct sl_error *why);
struct guest_question {
    enum sl_gate_question question;
    uint32_t count;
    bool at_once;
    uint64_t deadline_ns; /* the caller's: the stand-in takes SL_GATE_WAIT_NS_MAX of it at most */
};
sl_err guest_slot_ask(struct guest_lines *lines, struct guest_line *line, uint32_t slot,
                      const struct guest_question *question, struct sl_error *why);
/* Waits for the answer: SL_OK, its code, SL_ERR_TIMEOUT, SL_ERR_UNREACHABLE. Then the slot is to be freed.
 * What a late answer brings, pins and a draft, is given back. */
sl_err guest_slot_wait(struct guest_lines *lines, struct guest_line *line, uint32_t slot,
                       uint64_t deadline_ns, struct sl_error *why);
void guest_slot_free(struct guest_lines *lines, struct guest_line *line, uint32_t slot);
static inline unsigned char *guest_slot_at(const struct guest_line *line, uint32_t slot)
{
    return line->window + slot * line->slot_bytes;
}
/* Whether this came of what was begun then since no question may take longer: the caller may ask again. */
static inline bool guest_is_cut(sl_err code, uint64_t begun_ns)
{
    return (code == SL_ERR_TIMEOUT || code == SL_ERR_NO_SPACE) &&
           sl_clock_monotonic_ns() - begun_ns >= SL_GATE_WAIT_NS_MAX - GUEST_MARGIN_NS;
}

#endif
