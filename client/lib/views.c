/* client/lib/views.c - checks and releases views of pinned values. */
#include "client/lib/internal.h"

/* Releases a pin of the current attachment. False: it belongs to another one. */
static bool pin_give_now(const struct sl_client *client, uint32_t number, sl_pin pin)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    struct sl_attachment *at = sl_client_attachment(client);
    if (at->number == number) {
        sl_pins_release(at->pins, pin);
    }
    return at->number == number;
}

struct sl_attachment *sl_client_attachment_of(const struct sl_client *client, uint32_t number)
{
    struct sl_attachment *at = client->attachments;
    while (at != NULL && at->number != number) {
        at = at->next;
    }
    return at;
}

static void pin_give_of_old(struct sl_client *client, uint32_t number, sl_pin pin)
{
    pthread_mutex_lock(&client->lock);
    struct sl_attachment *at = sl_client_attachment_of(client, number);
    if (at != NULL) { /* else a copy of the view was released before */
        sl_pins_release(at->pins, pin);
    }
    pthread_mutex_unlock(&client->lock);
}

bool sl_view_valid(struct sl_client *client, const struct sl_view *view)
{
    uint32_t number = (uint32_t)(view->private_pin >> 32);
    pthread_mutex_lock(&client->lock);
    const struct sl_attachment *at = sl_client_attachment_of(client, number);
    bool intact = view->at != NULL && at != NULL && !sl_attachment_is_cut(at);
    pthread_mutex_unlock(&client->lock);
    return intact;
}

void sl_view_release(struct sl_client *client, struct sl_view *view)
{
    uint32_t number = (uint32_t)(view->private_pin >> 32);
    sl_pin pin = (sl_pin)(view->private_pin & UINT32_MAX);
    if (!sl_client_is_ours(client)) {
        pin = 0; /* the pin is the parent's */
    }
    if (pin != 0 && !pin_give_now(client, number, pin)) {
        pin_give_of_old(client, number, pin);
        sl_client_sweep(client);
    }
    *view = (struct sl_view){0};
}
