/* client/lib/internal.h - what the files of libsluice share. */
#ifndef SL_CLIENT_LIB_INTERNAL_H
#define SL_CLIENT_LIB_INTERNAL_H

#include "client/include/sluice.h"
#include "client/lib/readers.h"
#include "client/lib/turn.h"
#include "ipc/msg/sl_ahead.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_labels.h"
#include "ipc/shm/sl_leases.h"
#include "ipc/shm/sl_pins.h"
#include "ipc/shm/sl_seen.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_log.h"

#include <pthread.h>
#include <stdatomic.h>

#define SL_CLIENT_ARENAS_MAX 16u
/* Lives of the node whose memory one client may keep at a time: the current one, and those of which
 * it holds views or drafts. */
#define SL_CLIENT_ATTACHMENTS_MAX 64u
#define SL_CLIENT_CALLS_MAX       1024u
#define SL_CLIENT_OLD_LEASES_MAX  8u
#define SL_CLIENT_OLD_FIGURES_MAX 8u
/* Reserves given up whose answer may still come: their grants are handed back then. */
#define SL_CLIENT_GIVEN_UP_MAX 64u
#define SL_CLIENT_ORPHANS_MAX  65536u
#define SL_CLIENT_CANCEL_NS    (200 * SL_NS_PER_MS)
/* Of a put's terms, as in RESERVE. */
#define SL_TERMS_CONTRIBUTIONS_MAX 16u
#define SL_TERMS_NAME_BYTES_MAX    255u

/* The shared memory of one life of the node. Read by many threads without a lock, each in a section
 * of its own (readers.h) or with a hold. When a newer one has taken its place it is unmapped as
 * soon as no section reaches it, nothing holds it, and none of its pins is taken. */
/* What this process counts in, and asks of figures; NULL: the node has none. */
struct sl_client_figures {
    struct sl_counts *counts;
    struct sl_labels *labels;
    struct sl_seen *seen;
};

struct sl_attachment {
    struct sl_attachment *next; /* an older one; under the client's lock */
    struct sl_index_view *view;
    _Atomic(struct sl_arena *) arenas[SL_CLIENT_ARENAS_MAX]; /* attached when first needed */
    struct sl_pins *pins;                                    /* NULL: read-only */
    _Atomic(struct sl_counts *)
        counts; /* these three as sl_client_figures; they may come, and be */
    _Atomic(struct sl_labels *) labels; /* replaced, while the index stays */
    _Atomic(struct sl_seen *) seen;
    uint32_t number;        /* of the client's attachments, from 0 on; none has it again */
    _Atomic uint32_t holds; /* puts under way, drafts, memory that a GPU may use for ever */
    uint64_t retired;       /* of sl_readers_retire; under the client's lock */
    _Atomic(struct sl_leases *) leases; /* NULL: none asked for, or the node has none */
    struct sl_leases *old_leases[SL_CLIENT_OLD_LEASES_MAX]; /* replaced, under the client's lock */
    uint32_t old_leases_count;
    struct sl_client_figures old_figures[SL_CLIENT_OLD_FIGURES_MAX]; /* likewise */
    uint32_t old_figures_count;
    _Atomic uint64_t figures_again_ns; /* coarse; they are not looked at before */
    uint64_t figures_pause_ns;         /* under the client's lock; 0: none was out of reach last */
};

/* Memory that this client lends to the node. */
struct sl_client_contribution {
    struct sl_client_contribution *next;
    char name[256];
    uint64_t length_bytes;
    bool lasting;
};

/* A request on its way. The caller lends it, with msg and all that msg points at, until it is done.
 */
struct sl_client_call {
    struct sl_client_call *next;
    const char *to;
    struct sl_msg msg;
    uint64_t deadline_ns;
    /* Called under the client's lock with a borrowed reply whose code is SL_OK, or whose body may
     * matter anyway. */
    void (*answered)(void *context, const struct sl_msg *reply);
    void *context;
    /* state */
    uint64_t seq, began_ns, next_send_ns, retry_ns;
    bool ever_sent, silenced, done;
    bool unknown;      /* the registrar answered that it has not heard of us */
    bool sent_again;   /* so two processes may have taken it, one after the other, when ... */
    uint64_t connects; /* ... connections came to stand since it was first sent */
    struct sl_op *op;  /* whose end is told (ends.c), once; NULL: of none */
    sl_err code;
    struct sl_error why;
};

struct sl_client {
    struct sl_config *config;
    struct sl_paths paths;
    char instance[64];
    char name[SL_CLIENT_NAME_BYTES];
    struct sl_proc_id self; /* as who the node knows this client: of its pin file */
    /* One page that the kernel empties in a child: not 0 in the process that opened this client. */
    const volatile unsigned char *ours;
    bool read_only, leases, debugs; /* debugs: its log has debug lines, too */
    bool has_tenant;
    _Atomic bool holds; /* look-ups of blocks hold what they find */
    uint64_t op_timeout_ns, call_retry_ns, message_bytes_max;

    _Atomic(struct sl_attachment *) current;
    struct sl_turn contributing; /* at both of these */
    struct sl_client_contribution *contributions;
    _Atomic uint64_t contribute_again_ns; /* some were refused: asked for again then */

    _Atomic bool any_old;        /* attachments that are to be let go */
    _Atomic uint64_t checked_ns; /* when the node's files were last compared with the mapped ones */
    _Atomic uint64_t gone_ns;    /* since when there are none; 0: they are there */

    _Atomic uint32_t lent_count; /* entries of lent */

    pthread_mutex_t lock; /* all below */
    bool polling;         /* a thread waits at the descriptors, without the lock, */
    const struct sl_client_call *polled_for; /* for this call, */
    uint64_t polled_until_ns;                /* so long at most */
    int kick_fd;                             /* wakes it */
    struct sl_log *log;                      /* NULL until there is something to say */
    struct sl_client_waiter *waiters;        /* threads that wait meanwhile */
    struct sl_attachment *attachments;       /* the newest first */
    uint32_t attachment_count;               /* of the list */
    uint32_t next_number;                    /* of attachments */
    uint64_t greeted_generation;             /* boot generation of the registrar that knows us */
    _Atomic uint32_t greeted_attachment;     /* written under the lock, read without it, too */
    struct sl_mailbox *mailbox;
    /* Takes replies that no call awaits; NULL: nobody does. */
    void (*stray)(void *context, const char *from, const struct sl_msg *reply);
    void *stray_context;
    struct sl_codec *codec;
    struct sl_client_call *calls;
    uint32_t call_count;
    struct sl_client_call *ended_first, *ended_last; /* of ops, not told yet; by next */
    struct sl_client_ends *ends; /* NULL: nobody asked for the descriptor of ends */
    uint64_t next_seq, next_op_id;
    uint64_t given_up[SL_CLIENT_GIVEN_UP_MAX]; /* seq of reserves, a ring */
    uint32_t given_up_next;
    struct sl_item_claim *orphans; /* grants nobody will fill: to be aborted */
    uint32_t orphan_count;
    struct sl_client_lent *lent;    /* extents that a GPU may still touch (lent.h) */
    bool lent_settling;             /* a thread looks which of them have ended */
    struct sl_ahead ahead;          /* extents granted in advance */
    uint64_t ahead_useful_ns;       /* so long they are used */
    struct sl_pool *pools;          /* that this client has */
    bool apart;                     /* the node does not see our process by its number */
    struct sl_descriptors *files;   /* hands out memory of this process; NULL: none was asked for */
    char tenant[SL_LABEL_ID_BYTES]; /* written before others know the client */
    struct sl_label_place tenant_place;
};

/* ---- attach.c ---- */
/* Whether this process opened it, and no fork of that process did. */
bool sl_client_is_ours(const struct sl_client *client);
/* The current one: for a thread that is in a section, to the end of that section. */
struct sl_attachment *sl_client_attachment(const struct sl_client *client);
/* The number of the current one; any thread. */
uint32_t sl_client_life(const struct sl_client *client);
/* The current one, held until it is let go; any thread. */
struct sl_attachment *sl_client_hold(const struct sl_client *client);
/* One hold more, of one that is held or was found in this section. */
void sl_attachment_hold(struct sl_attachment *at);
void sl_client_let(struct sl_client *client, struct sl_attachment *at);
/* Unmaps old ones that nothing uses any more. Not under the lock. */
void sl_client_sweep(struct sl_client *client);
/* Attaches anew when the node's files are not the mapped ones any more. force: also when looked at
 * a moment ago. */
sl_err sl_client_reattach(struct sl_client *client, bool force, struct sl_error *why);
/* The same for readers, who go on with the memory that they have while a node is replaced.
 * Errors: SL_ERR_UNREACHABLE (it was stopped, and its files are gone for half a second),
 * SL_ERR_CORRUPT (its memory was cut short, and there is no other yet). */
sl_err sl_client_serves(struct sl_client *client, struct sl_error *why);
/* False: it does not, and all codes say so. */
bool sl_client_serves_batch(struct sl_client *client, sl_err *codes, uint32_t count,
                            struct sl_error *why);
/* Whether some of it may read as zeros that nobody wrote (sl_guard.h). To be asked behind every
 * look at its bytes, and before they are relied on: a write into it may be lost, and a pin that the
 * registrar does not see. */
bool sl_attachment_cut_is(const struct sl_attachment *at);
static inline bool sl_attachment_is_cut(const struct sl_attachment *at)
{
    return __builtin_expect(sl_guard_cuts() != 0, 0) && sl_attachment_cut_is(at);
}
/* What calls say then: SL_ERR_CORRUPT. */
sl_err sl_client_cut_fail(const struct sl_client *client, struct sl_error *why);
/* NULL: no such arena, or out of its bounds. */
void *sl_client_bytes(struct sl_client *client, struct sl_attachment *at, uint32_t arena,
                      uint64_t offset_bytes, uint64_t length_bytes);
/* Under the client's lock. NULL: it was let go. */
struct sl_attachment *sl_client_attachment_of(const struct sl_client *client, uint32_t number);
/* The arena in which bytes were found. */
const struct sl_arena *sl_client_arena(const struct sl_attachment *at, uint32_t arena);

/* What the thread of this section counts in, of what it does in this attachment. */
static inline struct sl_counts_row sl_client_counts(const struct sl_attachment *at,
                                                    const struct sl_reader *reader)
{
    return sl_counts_row_of(atomic_load_explicit(&at->counts, memory_order_acquire),
                            reader->number);
}

static inline struct sl_labels *sl_client_labels(const struct sl_attachment *at)
{
    return atomic_load_explicit(&at->labels, memory_order_acquire);
}

/* Where the client's tenant is counted; call where it has one. */
static inline uint32_t sl_client_tenant_label(struct sl_client *client, struct sl_labels *labels)
{
    return sl_label_find(labels, SL_LABEL_TENANT, client->tenant, "", &client->tenant_place);
}

/* ---- leases.c ---- */
/* Maps the node's leases when the client wants them and they are there, or others than before.
 * Under the client's lock, or before others know the attachment. Errors: SL_ERR_VERSION (the node's
 * leases are of another build: looked-up keys would not be kept). Whatever else is in the way is
 * looked at again in a moment. */
sl_err sl_client_leases_follow(struct sl_client *client, struct sl_attachment *at,
                               struct sl_error *why);
void sl_client_leases_close(struct sl_attachment *at);
/* Look-ups of this client hold blocks from now on. */
void sl_client_holds_begin(struct sl_client *client);
/* What they hold them with; NULL: the node has nothing for it. */
const struct sl_leases *sl_client_holds(const struct sl_attachment *at);
/* sl_index_find and sl_index_find_batch (entries may be NULL), leasing what they find. */
sl_err sl_client_look(const struct sl_client *client, const struct sl_attachment *at,
                      struct sl_object_key key, struct sl_entry *entry);
void sl_client_look_batch(const struct sl_client *client, const struct sl_attachment *at,
                          const struct sl_key *keys, uint32_t count, struct sl_entry *entries,
                          sl_err *codes);
/* Whether the lease of this look-up has ended. */
bool sl_client_lease_over(const struct sl_entry *entry);

/* ---- get.c ---- */
/* A look-up with all second thoughts. Errors: SL_ERR_INVALID, SL_ERR_NOT_FOUND, SL_ERR_BUSY. */
sl_err sl_client_find(struct sl_client *client, struct sl_object_key key, struct sl_entry *entry);
/* For a look-up: what is no key becomes one that nothing is found under. */
void sl_client_keys_look(const struct sl_object_key *keys, uint32_t count, struct sl_key *out);

/* ---- call.c ---- */
uint64_t sl_client_deadline(const struct sl_client *client, uint64_t timeout_ns);
uint64_t sl_client_random(void);
uint64_t sl_client_op_id(struct sl_client *client);
sl_err sl_client_talks(const struct sl_client *client, struct sl_error *why);
/* Puts the call on its way; it ends by its deadline whatever happens. Errors: SL_ERR_LIMIT, those
 * of encode. */
sl_err sl_client_call_start(struct sl_client *client, struct sl_client_call *call,
                            struct sl_error *why);
/* Waits until it is done or until_ns has passed: true when done. */
bool sl_client_call_wait(struct sl_client *client, struct sl_client_call *call, uint64_t until_ns);
/* Takes back a call that is not done. */
void sl_client_call_drop(struct sl_client *client, struct sl_client_call *call);
/* start and wait; the result is the reply's code, or why there was none. */
sl_err sl_client_call(struct sl_client *client, struct sl_client_call *call, struct sl_error *why);
/* Sends once, without waiting for an answer. False: it could not be sent now. */
bool sl_client_tell(struct sl_client *client, const char *to, struct sl_msg *msg,
                    uint64_t budget_ns);
/* Of a reply, into a field of to_bytes: cut where it does not fit, ended by a NUL. */
void sl_client_text_take(char *to, size_t to_bytes, const struct sl_text *from);
/* At most SL_BATCH_MAX keys as the table of messages takes them. what: of whom the text speaks.
 * Errors: SL_ERR_INVALID. */
sl_err sl_client_keys_check(const char *what, const struct sl_object_key *keys, uint32_t count,
                            struct sl_error *why);
#define SL_KEY_FRAME_BYTES     8u    /* of a key in a message, beside its text */
#define SL_KEYS_ENVELOPE_BYTES 4096u /* of all that a message of keys has besides */
/* Gives how many of the keys, one or more, fit into one message, and those as it takes them: texts
 * has room for count. */
uint32_t sl_client_keys_share(const struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, struct sl_text *texts);
/* Says hello to the registrar when it does not know us (yet, or any more). */
sl_err sl_client_greet(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why);
/* As sl_client_call, of a registrar that knows us. */
sl_err sl_client_ask(struct sl_client *client, struct sl_client_call *call, struct sl_error *why);
void sl_client_orphan(struct sl_client *client, const struct sl_item_claim *claims, uint32_t count);
void sl_client_sleep(uint64_t ns);

/* Under the client's lock: takes what has arrived, sends again what is due, ends what is over,
 * without waiting. True: more may be there. */
bool sl_client_pump(struct sl_client *client);
/* Then, before the lock is given up: arms the mailbox again for whoever sleeps. */
void sl_client_keep(struct sl_client *client);

/* ---- files.c ---- */
/* Descriptors of this process are handed to whoever of the node asks, from now on. Errors: those of
 * sl_descriptors_serve. */
sl_err sl_client_files_serve(struct sl_client *client, struct sl_error *why);

/* ---- ends.c: the descriptor of ends; under the client's lock but for the last one ---- */
/* The call of an op ended: sl_client_ended will give it. */
void sl_client_ends_add(struct sl_client *client, struct sl_client_call *call);
/* It is not to be given any more. */
void sl_client_ends_forget(struct sl_client *client, struct sl_client_call *call);
/* Whoever sleeps at the descriptor wakes at due_ns; 0: at once. */
void sl_client_ends_wake_at(struct sl_client *client, uint64_t due_ns);
void sl_client_ends_close(struct sl_client *client);

/* ---- memory.c ---- */
/* Where [at, +length) lies: as it was registered, else as the driver says. *gpu: of device memory.
 * Any thread. */
enum sl_place sl_memory_place(const void *at, uint64_t length_bytes, int *gpu);
/* Memory of the allocator comes and goes. Keeps a copy of the descriptor. */
sl_err sl_memory_ours_add(void *at, uint64_t length_bytes, int fd);
/* A copy of the descriptor of memory that lies in one allocation; -1: it does not, or there is
 * none. */
int sl_memory_ours_fd(const void *at, uint64_t length_bytes, uint64_t *offset_bytes);
/* Gives its length. False: it is not there. */
bool sl_memory_ours_take(void *at, uint64_t *length_bytes);

/* ---- contribute.c ---- */
/* Tells a registrar that may not know of it what this client contributes. Errors: those of calls
 * that are not answered. */
sl_err sl_client_contribute_again(struct sl_client *client, uint64_t deadline_ns,
                                  struct sl_error *why);
/* The client is about to be closed: takes back what does not last, as far as that is quick. */
void sl_client_contributions_end(struct sl_client *client);

/* ---- op.c ---- */
/* what: of whom the text speaks. Errors: SL_ERR_INVALID. */
sl_err sl_client_hints_check(const char *what, const struct sl_hints *hints, struct sl_error *why);

/* ---- session.c ---- */
/* What stands for a session's name in messages; NULL: 0. */
uint64_t sl_client_session_id(const char *name);

/* ---- identity.c ---- */
void sl_model_identity(const struct sl_engine_options *options, char out[33]);
/* What it is made of, and the seed of the keys, for people. Not to be copied: items point into it.
 */
struct sl_identity_facts {
    struct sl_item_fact items[32];
    uint32_t count;
    size_t used;
    char text[6144];
};
void sl_identity_facts(const struct sl_engine_options *options, struct sl_identity_facts *facts);

#endif
