/* What Go calls: the handlers of programs. All arguments that are not plain numbers are
 * handles and pointers that only the program knows. */
#ifndef TRAPEZE_CALLBACKS_H
#define TRAPEZE_CALLBACKS_H

#include <stdint.h>

void trapeze_error(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, uintptr_t cq,
		   uintptr_t descriptor, unsigned long operation, int resource, int code);
void trapeze_completed(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, uintptr_t descriptor);
void trapeze_cq_completed(uintptr_t handler, uintptr_t context, uintptr_t nic, uintptr_t vi, int receive);

#endif
