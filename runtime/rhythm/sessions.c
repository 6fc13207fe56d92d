/* runtime/rhythm/sessions.c - the table of sessions, and which of them are due. */
#include "runtime/rhythm/sessions.h"
#include "runtime/rhythm/rhythm.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_heap.h"
#include "runtime/sl_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX (UINT32_C(1) << 20)
/* What is worth less a second is not worth a read. */
#define WORTH_LEAST 1e-6
/* The room for what is brought is to be so full. When it is fuller, sessions are brought later, when
 * they are worth more; each try and each turn moves the edge a bit. */
#define FULL_AIM   0.7
#define EDGE_MOVES 0.1
#define EDGE_FALLS 0.999
/* What was learnt is used after so many turns. */
#define SETTLE_TURNS 128u
/* A session is looked at again after a quarter of its pause, and this: what it is worth may be known
 * better by then. */
#define LOOK_NS (100 * SL_NS_PER_MS)
/* Whether what came is still there: of the pause so far, looked at once in so much. */
#define WATCH_SHARE 32u
/* What is told in a pause, or is left of it, is so much at least. */
#define TOLD_NS_LEAST (100 * SL_NS_PER_MS)

struct session {
    uint64_t id, tail; /* tail: a block that the next turn has, too; 0: none */
    uint64_t at_ns;    /* the end of its last request */
    uint64_t from_ns;  /* the pause counts from then: at_ns, or when it was told of meanwhile */
    uint64_t here_ns;  /* its blocks are in memory until then; 0: nobody saw to it */
    struct sl_pause pause;
    struct sl_table_node by_id, by_tail;
    uint32_t older, newer;
    uint32_t serial;
    bool used;
    bool asked; /* it was given as due, and is not tried yet */
    bool apart; /* the pause was told of without a request: its end stands */
};

struct sl_sessions {
    struct sl_rhythm rhythm;
    struct session *all; /* count_max, and one that is both ends of the list by last turn */
    uint32_t count_max, count, free_first;
    struct sl_table by_id, by_tail;
    struct sl_heap due;
    double edge;      /* that of memory */
    double edge_here; /* so that those fit that are brought: rises when one was refused */
    uint64_t lead_ns;
    uint32_t turns; /* since what was learnt was used */
    uint32_t serial;
    sl_sessions_here_fn here;
    void *here_context;
};

sl_err sl_sessions_create(uint32_t count_max, sl_sessions_here_fn here, void *context,
                          struct sl_sessions **out)
{
    SL_ASSERT(count_max > 0 && count_max <= COUNT_MAX);
    struct sl_sessions *sessions = calloc(1, sizeof(*sessions));
    if (sessions == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_rhythm_init(&sessions->rhythm);
    sessions->count_max = count_max;
    sessions->edge = sessions->edge_here = WORTH_LEAST;
    sessions->here = here;
    sessions->here_context = context;
    sessions->all = calloc(count_max + (size_t)1, sizeof(*sessions->all));
    if (sessions->all == NULL || !sl_table_reserve(&sessions->by_id, count_max) ||
        !sl_table_reserve(&sessions->by_tail, count_max) ||
        sl_heap_init(&sessions->due, count_max, NULL) != SL_OK) {
        sl_sessions_destroy(&sessions);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count_max; i++) {
        sessions->all[i].newer = i + 1; /* the last one has none, and none is taken when all are */
    }
    sessions->all[count_max].older = sessions->all[count_max].newer = count_max;
    *out = sessions;
    return SL_OK;
}

void sl_sessions_destroy(struct sl_sessions **sessions)
{
    if (*sessions != NULL) {
        sl_table_fini(&(*sessions)->by_id);
        sl_table_fini(&(*sessions)->by_tail);
        sl_heap_fini(&(*sessions)->due);
        free((*sessions)->all);
        free(*sessions);
        *sessions = NULL;
    }
}

/* ---- the list by last turn ---- */

static void list_remove(struct sl_sessions *sessions, uint32_t number)
{
    const struct session *at = &sessions->all[number];
    sessions->all[at->older].newer = at->newer;
    sessions->all[at->newer].older = at->older;
}

static void list_append(struct sl_sessions *sessions, uint32_t number)
{
    struct session *end = &sessions->all[sessions->count_max];
    sessions->all[number].older = end->older;
    sessions->all[number].newer = sessions->count_max;
    sessions->all[end->older].newer = number;
    end->older = number;
}

/* ---- sessions ---- */

static uint64_t age_ns(const struct session *at, uint64_t now_ns)
{
    return now_ns > at->from_ns ? now_ns - at->from_ns : 0;
}

void sl_sessions_drop(struct sl_sessions *sessions, uint32_t session)
{
    struct session *at = &sessions->all[session];
    if (!at->used) {
        return;
    }
    sl_table_remove(&sessions->by_id, &at->by_id);
    sl_table_remove(&sessions->by_tail, &at->by_tail);
    sl_heap_clear(&sessions->due, session);
    list_remove(sessions, session);
    *at = (struct session){.newer = sessions->free_first};
    sessions->free_first = session;
    sessions->count--;
}

static uint32_t session_make(struct sl_sessions *sessions, uint64_t id, uint64_t now_ns)
{
    if (sessions->count == sessions->count_max) {
        uint32_t oldest = sl_sessions_oldest(sessions);
        const struct session *at = &sessions->all[oldest];
        sl_rhythm_note(&sessions->rhythm, &at->pause, age_ns(at, now_ns), SL_RHYTHM_LOST);
        sl_sessions_drop(sessions, oldest);
    }
    uint32_t number = sessions->free_first;
    struct session *at = &sessions->all[number];
    sessions->free_first = at->newer;
    *at = (struct session){.used = true, .id = id, .pause.first = true};
    if (id != 0) {
        sl_table_add(&sessions->by_id, &at->by_id, sl_table_hash(id));
    }
    list_append(sessions, number);
    sessions->count++;
    return number;
}

static uint32_t number_of(const struct sl_sessions *sessions, const struct session *at)
{
    return at != NULL ? (uint32_t)(at - sessions->all) : SL_SESSION_NONE;
}

static uint32_t find_by_id(const struct sl_sessions *sessions, uint64_t id)
{
    return number_of(sessions,
                     SL_TABLE_FIRST(&sessions->by_id, sl_table_hash(id), struct session, by_id));
}

static uint32_t find_by_block(const struct sl_sessions *sessions, uint64_t block)
{
    return number_of(sessions, SL_TABLE_FIRST(&sessions->by_tail, sl_table_hash(block),
                                              struct session, by_tail));
}

static uint32_t find(const struct sl_sessions *sessions, const struct sl_turn *turn)
{
    uint32_t found = turn->id != 0 ? find_by_id(sessions, turn->id) : SL_SESSION_NONE;
    if (turn->id != 0) {
        return found;
    }
    for (uint32_t i = turn->count; found == SL_SESSION_NONE && i-- > 0;) {
        found = find_by_block(sessions, turn->blocks[i]);
    }
    return found == SL_SESSION_NONE && turn->before != 0 ? find_by_block(sessions, turn->before)
                                                         : found;
}

/* The last block may be incomplete, and another one when the chain goes on: the one before it then.
 * A chain of one block says too little: many begin with the same. 0: there is none. */
static uint64_t tail_of(const struct sl_turn *turn)
{
    uint64_t total = (uint64_t)turn->depth + turn->count;
    if (turn->count == 0 || total < 2) {
        return 0;
    }
    if (total == 2) {
        return turn->blocks[turn->count - 1];
    }
    return turn->count > 1 ? turn->blocks[turn->count - 2] : turn->before;
}

static void tail_set(struct sl_sessions *sessions, struct session *at, uint64_t tail)
{
    if (tail != 0 && tail != at->tail) {
        sl_table_remove(&sessions->by_tail, &at->by_tail);
        at->tail = tail;
        sl_table_add(&sessions->by_tail, &at->by_tail, sl_table_hash(tail));
    }
}

/* ---- what is due ---- */

static double edge(const struct sl_sessions *sessions)
{
    return sessions->edge > sessions->edge_here ? sessions->edge : sessions->edge_here;
}

/* From this age on. */
static void plan(struct sl_sessions *sessions, struct session *at, uint64_t from_ns,
                 uint64_t now_ns)
{
    uint64_t lead_ns = sessions->lead_ns;
    uint64_t when_ns =
        sl_rhythm_when(&sessions->rhythm, &at->pause, from_ns + lead_ns, edge(sessions));
    bool watched = sessions->here != NULL && at->here_ns > now_ns;
    uint64_t look_ns = now_ns + age_ns(at, now_ns) / (watched ? WATCH_SHARE : 4u) + LOOK_NS;
    uint64_t due_ns =
        when_ns == SL_NEVER_NS ? SL_NEVER_NS : sl_deadline_ns(at->from_ns, when_ns - lead_ns);
    due_ns = SL_MAX(due_ns, now_ns + SL_NS_PER_US); /* never now again: who looks comes to an end */
    sl_heap_set(&sessions->due, number_of(sessions, at), SL_MIN(due_ns, look_ns));
}

/* Of the pause's length, at a store: what was told apart from requests ends when it ends. */
static uint64_t told_left(const struct session *at, uint64_t now_ns)
{
    uint64_t age = age_ns(at, now_ns), told_ns = at->pause.told_ns;
    if (!at->apart || told_ns == 0) {
        return told_ns;
    }
    return told_ns > age + TOLD_NS_LEAST ? told_ns - age : TOLD_NS_LEAST;
}

uint32_t sl_sessions_turn(struct sl_sessions *sessions, const struct sl_turn *turn, uint64_t now_ns,
                          bool *fresh)
{
    uint64_t tail = tail_of(turn);
    uint32_t number = find(sessions, turn);
    *fresh = false;
    if (turn->ends) {
        if (number != SL_SESSION_NONE) {
            sl_sessions_drop(sessions, number);
        }
        return SL_SESSION_NONE;
    }
    if (number == SL_SESSION_NONE) {
        if (turn->id == 0 && tail == 0) {
            return SL_SESSION_NONE;
        }
        *fresh = true;
        number = session_make(sessions, turn->id, now_ns);
    }
    struct session *at = &sessions->all[number];
    if (turn->load && !*fresh) {
        sl_rhythm_note(&sessions->rhythm, &at->pause, age_ns(at, now_ns), SL_RHYTHM_BACK);
        at->pause.first = false;
        at->pause.told_ns = 0;
        at->pause.over = at->apart = false;
    }
    if (turn->pause_ns != 0) {
        at->pause.told_ns = turn->pause_ns;
        at->pause.over = at->apart = false;
    } else {
        at->pause.told_ns = told_left(at, now_ns);
    }
    at->at_ns = at->from_ns = now_ns;
    at->here_ns = 0;
    at->asked = false;
    at->serial = ++sessions->serial;
    tail_set(sessions, at, tail);
    list_remove(sessions, number);
    list_append(sessions, number);
    sessions->turns++;
    sessions->edge_here = SL_MAX(sessions->edge_here * EDGE_FALLS, WORTH_LEAST);
    plan(sessions, at, 0, now_ns);
    return number;
}

uint32_t sl_sessions_told(struct sl_sessions *sessions, uint64_t id, uint64_t pause_ns,
                          uint64_t now_ns)
{
    uint32_t number = id != 0 ? find_by_id(sessions, id) : SL_SESSION_NONE;
    if (number == SL_SESSION_NONE) {
        return SL_SESSION_NONE;
    }
    struct session *at = &sessions->all[number];
    bool known = pause_ns != SL_TOLD_UNKNOWN;
    if (at->pause.over || at->pause.told_ns != 0) {
        /* It did not come back so far. What nothing was told of is not counted: it would be again. */
        sl_rhythm_note(&sessions->rhythm, &at->pause, age_ns(at, now_ns), SL_RHYTHM_LOST);
    }
    at->pause.over = pause_ns == 0;
    at->pause.told_ns = known && pause_ns != 0 ? SL_MAX(pause_ns, TOLD_NS_LEAST) : 0;
    at->apart = known;
    at->from_ns = known ? now_ns : at->at_ns;
    if (!at->asked) { /* else it is planned when it was tried */
        plan(sessions, at, age_ns(at, now_ns), now_ns);
    }
    return number;
}

uint32_t sl_sessions_oldest(const struct sl_sessions *sessions)
{
    return sessions->count > 0 ? sessions->all[sessions->count_max].newer : SL_SESSION_NONE;
}

uint32_t sl_sessions_count(const struct sl_sessions *sessions)
{
    return sessions->count;
}

void sl_sessions_edge(struct sl_sessions *sessions, double hits_a_second, uint64_t lead_ns)
{
    sessions->edge = hits_a_second > WORTH_LEAST ? hits_a_second : WORTH_LEAST;
    sessions->lead_ns = lead_ns;
}

uint64_t sl_sessions_next_ns(const struct sl_sessions *sessions)
{
    return sl_heap_next_ns(&sessions->due);
}

static void settle(struct sl_sessions *sessions, uint64_t now_ns)
{
    sessions->turns = 0;
    for (uint32_t i = 0; i < sessions->count_max; i++) {
        const struct session *at = &sessions->all[i];
        if (at->used) {
            sl_rhythm_note(&sessions->rhythm, &at->pause, age_ns(at, now_ns), SL_RHYTHM_OPEN);
        }
    }
    sl_rhythm_settle(&sessions->rhythm);
}

bool sl_sessions_due(struct sl_sessions *sessions, uint64_t now_ns, struct sl_session_due *out)
{
    struct sl_heap_item item;
    if (sessions->turns >= SETTLE_TURNS) {
        settle(sessions, now_ns);
    }
    while (sl_heap_pop(&sessions->due, now_ns, &item)) {
        struct session *at = &sessions->all[item.id];
        uint64_t age = age_ns(at, now_ns) + sessions->lead_ns;
        uint64_t until_ns = 0;
        double worth = sl_rhythm_worth(&sessions->rhythm, &at->pause, age, &until_ns);
        bool is_due = sl_rhythm_when(&sessions->rhythm, &at->pause, age, edge(sessions)) == age;
        if (is_due && at->here_ns > now_ns && sessions->here != NULL &&
            !sessions->here(sessions->here_context, item.id)) {
            at->here_ns = 0;
        }
        if (is_due && now_ns + sessions->lead_ns >= at->here_ns) {
            at->asked = true;
            *out =
                (struct sl_session_due){.session = item.id,
                                        .serial = at->serial,
                                        .worth = worth,
                                        .for_ns = sl_deadline_ns(at->from_ns, until_ns) - now_ns};
            return true;
        }
        bool waits = is_due && at->here_ns > at->from_ns; /* for its turn, or the end of its time */
        plan(sessions, at,
             SL_MAX(age_ns(at, now_ns) + 1, waits ? at->here_ns - at->from_ns : UINT64_C(0)),
             now_ns);
    }
    return false;
}

void sl_sessions_tried(struct sl_sessions *sessions, const struct sl_session_due *due, bool here,
                       double full, uint64_t now_ns)
{
    struct session *at = &sessions->all[due->session];
    sessions->edge_here =
        SL_MAX(sessions->edge_here * exp(EDGE_MOVES * (full - FULL_AIM)), WORTH_LEAST);
    if (!at->used || at->serial != due->serial) {
        return; /* it had another turn, or went */
    }
    at->asked = false;
    uint64_t age = age_ns(at, now_ns);
    if (here) {
        at->here_ns = sl_deadline_ns(now_ns, due->for_ns);
        age += due->for_ns > sessions->lead_ns ? due->for_ns - sessions->lead_ns : 0;
    } else {
        age += age / 32 + SL_NS_PER_MS;
    }
    plan(sessions, at, age, now_ns);
}
