/* runtime/base/sl_guard.c - see sl_guard.h.
 *
 * The handler uses only atomics and mmap. A thread that faults at an address uses that mapping, so
 * it is not removed meanwhile and the zeros replace nothing else. All of the mapping from the
 * faulting page on is replaced: a file that ends before that page has no later pages, and each page
 * of a copy would fault by itself. */
#include "runtime/base/sl_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARDS_MAX 8192u /* a registrar maps a file of each of its clients */

struct sl_guard {
    _Atomic uintptr_t from; /* 0: unused, or being filled */
    _Atomic uintptr_t end;
    _Atomic bool taken, cut;
    bool count_cut;
};

_Atomic uint32_t sl_guard_cut_count;
void (*_Atomic sl_guard_cut_hook)(void);

static struct sl_guard guards[GUARDS_MAX];
static _Atomic uint32_t guards_used; /* slots from here on were never used */
static struct sigaction before;      /* the previous action; set once, before the handler */
static _Atomic bool installed;
static uintptr_t page_bytes; /* set before the handler */
static pthread_once_t install_once = PTHREAD_ONCE_INIT;

/* ---- the handler ---- */

/* Reads `from` twice: a guard that is reused meanwhile has the end of another mapping. */
static bool guard_covers(const struct sl_guard *guard, uintptr_t at, uintptr_t *end)
{
    uintptr_t from = atomic_load_explicit(&guard->from, memory_order_acquire);
    *end = atomic_load_explicit(&guard->end, memory_order_acquire);
    return from != 0 && at >= from && at < *end &&
           atomic_load_explicit(&guard->from, memory_order_acquire) == from;
}

static bool zeros_map(uintptr_t from, uintptr_t end)
{
    return mmap((void *)from, end - from, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* Sets the mark before the zeros are visible, so a reader that sees zeros finds the mark. */
static bool guard_patch(uintptr_t at)
{
    uintptr_t page = at & ~(page_bytes - 1);
    uintptr_t end = 0;
    uint32_t used = atomic_load_explicit(&guards_used, memory_order_acquire);
    struct sl_guard *guard = guards;
    while (guard < guards + used && !guard_covers(guard, at, &end)) {
        guard++;
    }
    if (guard == guards + used) {
        return false;
    }
    void (*ends)(void) = atomic_load_explicit(&sl_guard_cut_hook, memory_order_acquire);
    if (guard->count_cut && ends != NULL) {
        ends();
    }
    /* Counted first: a reader that finds another thread's mark also finds its count. */
    if (guard->count_cut) {
        (void)atomic_fetch_add_explicit(&sl_guard_cut_count, 1, memory_order_seq_cst);
    }
    if (atomic_exchange_explicit(&guard->cut, true, memory_order_seq_cst) && guard->count_cut) {
        (void)atomic_fetch_sub_explicit(&sl_guard_cut_count, 1, memory_order_seq_cst);
    }
    /* The whole range may exceed what the system commits to a process at once. */
    return zeros_map(page, end) || zeros_map(page, page + page_bytes);
}

static void guard_forward(int number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != NULL) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (info->si_code > 0) { /* the access is repeated, and then ends the process as usual */
        (void)sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    } else if (before.sa_handler ==
               SIG_DFL) { /* sent by a process: arrives when the handler returns */
        (void)sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        (void)raise(number);
    }
}

static void guard_fault(int number, siginfo_t *info, void *context)
{
    int os_code = errno;
    if (info->si_code != BUS_ADRERR || !guard_patch((uintptr_t)info->si_addr)) {
        guard_forward(number, info, context);
    }
    errno = os_code;
}

static void guard_install(void)
{
    struct sigaction ours = {.sa_sigaction = guard_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&ours.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &before) == 0 && sigaction(SIGBUS, &ours, NULL) == 0) {
        atomic_store_explicit(&installed, true, memory_order_release);
    }
}

/* ---- registering ---- */

/* Without a lock: another thread may fork between lock and unlock. */
static struct sl_guard *guard_take(void)
{
    for (uint32_t i = 0; i < GUARDS_MAX; i++) {
        bool taken = false;
        if (atomic_load_explicit(&guards[i].taken, memory_order_relaxed) ||
            !atomic_compare_exchange_strong_explicit(&guards[i].taken, &taken, true,
                                                     memory_order_acquire, memory_order_relaxed)) {
            continue;
        }
        uint32_t used = atomic_load_explicit(&guards_used, memory_order_relaxed);
        while (used <= i &&
               !atomic_compare_exchange_weak_explicit(&guards_used, &used, i + 1,
                                                      memory_order_release, memory_order_relaxed)) {
        }
        return &guards[i];
    }
    return NULL;
}

struct sl_guard *sl_guard_add(void *at, uint64_t length_bytes, bool count_cut)
{
    (void)pthread_once(&install_once, guard_install);
    struct sl_guard *guard =
        atomic_load_explicit(&installed, memory_order_acquire) ? guard_take() : NULL;
    if (guard != NULL) {
        uintptr_t from = (uintptr_t)at;
        guard->count_cut = count_cut;
        atomic_store_explicit(&guard->cut, false, memory_order_relaxed);
        atomic_store_explicit(&guard->end, from + sl_align_up(length_bytes, page_bytes),
                              memory_order_release);
        atomic_store_explicit(&guard->from, from, memory_order_release);
    }
    return guard;
}

void sl_guard_remove(struct sl_guard **guard)
{
    struct sl_guard *gone = *guard;
    if (gone == NULL) {
        return;
    }
    atomic_store_explicit(&gone->from, 0, memory_order_release);
    if (atomic_load_explicit(&gone->cut, memory_order_acquire) && gone->count_cut) {
        (void)atomic_fetch_sub_explicit(&sl_guard_cut_count, 1, memory_order_release);
    }
    atomic_store_explicit(&gone->taken, false, memory_order_release);
    *guard = NULL;
}

bool sl_guard_is_cut(const struct sl_guard *guard)
{
    if (guard == NULL) {
        return false;
    }
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&guard->cut, memory_order_acquire);
}
