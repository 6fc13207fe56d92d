/* client/mooncake/store/fork.c - keeps stores usable in a forked child: its tables are consistent,
 * and no lock is held by a thread that exists only in the parent. */
#include "client/mooncake/store/internal.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t stores_lock = PTHREAD_MUTEX_INITIALIZER; /* before stores' own */
static struct sl_store *stores;

static void fork_begins(void)
{
    pthread_mutex_lock(&stores_lock);
    for (struct sl_store *store = stores; store != NULL; store = store->next) {
        pthread_mutex_lock(&store->lock);
    }
    pthread_mutex_lock(&store_memories_lock);
}

static void fork_ends(void)
{
    pthread_mutex_unlock(&store_memories_lock);
    for (struct sl_store *store = stores; store != NULL; store = store->next) {
        pthread_mutex_unlock(&store->lock);
    }
    pthread_mutex_unlock(&stores_lock);
}

/* `life` and `changed` may be in use by threads that the child does not have. */
static void fork_ends_in_child(void)
{
    for (struct sl_store *store = stores; store != NULL; store = store->next) {
        (void)pthread_mutex_init(&store->life, NULL);
        (void)pthread_cond_init(&store->changed, NULL);
    }
    fork_ends();
}

static void forks_watch(void)
{
    (void)pthread_atfork(fork_begins, fork_ends, fork_ends_in_child);
}

void store_fork_watch(void)
{
    (void)pthread_once(&once, forks_watch);
}

void store_fork_add(struct sl_store *store)
{
    store_fork_watch();
    pthread_mutex_lock(&stores_lock);
    store->next = stores;
    stores = store;
    pthread_mutex_unlock(&stores_lock);
}

void store_fork_take(struct sl_store *store)
{
    pthread_mutex_lock(&stores_lock);
    struct sl_store **at = &stores;
    while (*at != store) {
        at = &(*at)->next;
    }
    *at = store->next;
    pthread_mutex_unlock(&stores_lock);
}
