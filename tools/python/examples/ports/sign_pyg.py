# PyG's SIGN, fed by Hopfeed: hopfeed.sign for T.SIGN(3) and for the DataLoader.
import sys; from common import *
import torch.nn.functional as F, hopfeed
from torch.nn import Linear
K=3; torch.manual_seed(int(sys.argv[3]) if len(sys.argv)>3 else 0); clock=Clock()
t=time.time(); data=pyg(sys.argv[1]); train_loader=hopfeed.sign(data,K,batch_size=8000 if sys.argv[1]=='syn' else 512,shuffle=True,seed=torch.initial_seed()); prep=time.time()-t
val_loader,test_loader=(train_loader.dataset.loader(split=split,batch_size=8000,shuffle=False) for split in ('val','test'))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.lins=torch.nn.ModuleList(Linear(data.num_node_features,128) for _ in range(K+1)); self.lin=Linear((K+1)*128,int(data.y.max())+1)
    def forward(self,xs):
        hs=[F.dropout(l(x).relu(),p=0.5,training=self.training) for x,l in zip(xs,self.lins)]
        return self.lin(torch.cat(hs,dim=-1)).log_softmax(dim=-1)
model=Net(); optimizer=torch.optim.Adam(model.parameters(),lr=0.01 if sys.argv[1]!='syn' else 0.003)
def train():
    model.train()
    for batch in train_loader:
        idx,xs=batch.n_id,batch.x.unbind(1)
        y=data.y[idx]
        optimizer.zero_grad(); loss=F.nll_loss(model(xs),y); loss.backward(); optimizer.step()
@torch.no_grad()
def test(loader):
    model.eval(); c=n=0
    for batch in loader:
        idx,xs=batch.n_id,batch.x.unbind(1)
        c+=int((model(xs).argmax(-1)==data.y[idx]).sum()); n+=idx.numel()
    return c/n
best=(0,0)
for e in range(int(sys.argv[2])):
    with clock: train()
    v=test(val_loader)
    if v>best[0]: best=(v,test(test_loader))
clock.done(prep=round(prep,2),test=round(best[1],4))
