// torch.compile in the same process: its hook is off on this thread while Python of ours makes an entry.
#pragma once

#include "frame/objects.h"

// What Dynamo's frame hook would compile on this thread is nothing while the object lives: frames of graftjit, and torch's
// below them, are no part of the program. Does nothing unless the program has imported torch._dynamo.
class WithoutDynamo {
  public:
    WithoutDynamo();
    WithoutDynamo(const WithoutDynamo &) = delete;
    ~WithoutDynamo();

  private:
    Ref set_callback;  // Dynamo's own function for it, and what to give back
    Ref before;
    bool on_top = false;
};
