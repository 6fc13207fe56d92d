/* runtime/base/sl_table.c - see sl_table.h. */
#include "runtime/base/sl_table.h"

#include <stdlib.h>
#include <string.h>

#define HEADS_MAX (UINT32_C(1) << 31)

bool sl_table_reserve(struct sl_table *table, uint32_t count)
{
    uint32_t head_count = SL_MAX(table->head_count, 1u);
    while (head_count < count && head_count < HEADS_MAX) {
        head_count *= 2;
    }
    if (head_count == table->head_count) {
        return true;
    }
    struct sl_table fresh = {.head_count = head_count};
    fresh.heads = calloc(head_count, sizeof(void *));
    if (fresh.heads == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < table->head_count; i++) {
        while (table->heads[i] != NULL) {
            struct sl_table_node *node = table->heads[i];
            table->heads[i] = node->next;
            sl_table_add(&fresh, node, node->hash);
        }
    }
    free(table->heads);
    *table = fresh;
    return true;
}

void sl_table_clear(struct sl_table *table)
{
    if (table->heads != NULL) {
        memset(table->heads, 0, table->head_count * sizeof(void *));
    }
    table->count = 0;
}

void sl_table_fini(struct sl_table *table)
{
    free(table->heads);
    *table = (struct sl_table){0};
}
