/* runtime/base/sl_table.h - a hash table of items that embed their own nodes.
 *
 * An item has a node for each table that holds it, must not move while it is in one, and is found
 * by a hash. Several items may have the same hash, so a caller whose hashes are not unique ids
 * compares. Only sl_table_reserve allocates memory, for the bucket heads. */
#ifndef SL_TABLE_H
#define SL_TABLE_H

#include "runtime/base/sl_error.h"

struct sl_table_node {
    struct sl_table_node *next, **link; /* link NULL: in no table */
    uint64_t hash;
};

struct sl_table { /* zeroes: empty; one thread at a time */
    struct sl_table_node **heads;
    uint32_t head_count; /* a power of two */
    uint32_t count;
};

/* Sizes the table for count items; it accepts more, but gets slower. False: no memory. */
bool sl_table_reserve(struct sl_table *table, uint32_t count);
void sl_table_clear(struct sl_table *table); /* before items move; then add each again */
void sl_table_fini(struct sl_table *table);  /* the caller owns the items */

/* The hash of an id. Different ids have different hashes. */
static inline uint64_t sl_table_hash(uint64_t id)
{
    uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15); /* its upper bits depend on all bits */
    return mixed >> 32 | mixed << 32;
}

/* Prefetches the head of a hash that is looked up or added soon. */
static inline void sl_table_fetch(const struct sl_table *table, uint64_t hash)
{
    __builtin_prefetch(&table->heads[hash & (table->head_count - 1)], 1);
}

/* The table must have heads; the low bits of the hash choose one. The newest item of a hash is
 * found first, until sl_table_reserve moves them. */
static inline void sl_table_add(struct sl_table *table, struct sl_table_node *node, uint64_t hash)
{
    struct sl_table_node **head = &table->heads[hash & (table->head_count - 1)];
    struct sl_table_node *next = *head;
    node->next = next;
    node->link = head;
    node->hash = hash;
    if (next != NULL) {
        next->link = &node->next;
    }
    *head = node;
    table->count++;
}

/* Does nothing if the node is in no table. */
static inline void sl_table_remove(struct sl_table *table, struct sl_table_node *node)
{
    struct sl_table_node **link = node->link, *next = node->next;
    if (link == NULL) {
        return;
    }
    *link = next;
    if (next != NULL) {
        next->link = link;
    }
    node->link = NULL;
    table->count--;
}

/* The first node with the hash, from `node` on; NULL: none. */
static inline struct sl_table_node *sl_table_seek(struct sl_table_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

static inline struct sl_table_node *sl_table_first(const struct sl_table *table, uint64_t hash)
{
    return table->count == 0 ? NULL
                             : sl_table_seek(table->heads[hash & (table->head_count - 1)], hash);
}

static inline void *sl_table_item(struct sl_table_node *node, size_t offset_bytes)
{
    return node == NULL ? NULL : (unsigned char *)node - offset_bytes;
}

/* The item that embeds the node; NULL for NULL. */
#define SL_TABLE_ITEM(node, type, member) ((type *)sl_table_item(node, offsetof(type, member)))

/* Iterates over the items of a hash; NULL after the last:
 *
 *     struct op *op = SL_TABLE_FIRST(&table, hash, struct op, node);
 *     while (op != NULL && !op_is(op, wanted)) {
 *         op = SL_TABLE_NEXT(op, struct op, node);
 *     } */
#define SL_TABLE_FIRST(table, hash, type, member) \
    SL_TABLE_ITEM(sl_table_first(table, hash), type, member)
#define SL_TABLE_NEXT(item, type, member) \
    SL_TABLE_ITEM(sl_table_seek((item)->member.next, (item)->member.hash), type, member)

#endif
